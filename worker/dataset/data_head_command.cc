#include <algorithm>
#include <cstddef>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "nlohmann/json.hpp"
#include "worker/data/token_file.h"
#include "worker/dataset/data_commands.h"
#include "worker/dataset/prompt_look.h"
#include "worker/dataset/text_codec.h"

namespace sherd {
namespace {

// What a terminal and a reader can bear.
constexpr int64_t kMostTokens = 1 << 20;

struct HeadLine {
  std::string file;
  DataFlags flags;
  int64_t tokens = 32;
};

// Tokens, and what they stand for where that is known.
struct Piece {
  std::vector<int32_t> ids;
  std::string text;
};

// A line of prompts and completions.
struct Pair {
  Piece prompt;
  Piece completion;
  // Of the whole line, those that the loss counts and the others.
  int64_t unmasked = 0;
  int64_t masked = 0;
};

struct Head {
  std::string name;
  std::string format;
  Piece tokens;
  // Of kPromptFormat, instead.
  std::vector<Pair> pairs;
};

absl::Status ReadTokens(TokenFormat format, int64_t most, Head& head) {
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file,
                         OpenTokenFile("", head.name, format));
  head.name = file->name();
  const int64_t count = std::min(most, file->tokens());
  head.tokens.ids.resize(static_cast<size_t>(count));
  SHERD_RETURN_IF_ERROR(file->Read(0, count, head.tokens.ids.data()));
  if (format == TokenFormat::kText || format == TokenFormat::kJsonl) {
    for (const int32_t id : head.tokens.ids) head.tokens.text.push_back(static_cast<char>(id));
  }
  return absl::OkStatus();
}

absl::Status ReadPairs(const std::string& tokenizer, int64_t most, Head& head) {
  SHERD_ASSIGN_OR_RETURN(const TextCodec codec,
                         TextCodec::Load(tokenizer.empty() ? "bytes" : tokenizer));
  int64_t left = most;
  return ReadPrompts(head.name, codec, 0, [&](const PromptLine& line, int64_t counted) {
    Pair pair;
    const auto length = static_cast<int64_t>(line.tokens.size());
    for (int64_t at = 0; at < std::min(length, left); ++at) {
      const TokenId id = line.tokens[static_cast<size_t>(at)];
      Piece& piece = at < line.prompt ? pair.prompt : pair.completion;
      piece.ids.push_back(static_cast<int32_t>(id));
      piece.text += codec.Decode(id);
    }
    pair.unmasked = counted;
    pair.masked = length - counted;
    head.pairs.push_back(std::move(pair));
    left -= std::min(length, left);
    return left > 0;
  });
}

absl::StatusOr<Head> ReadHead(const HeadLine& line) {
  Head head;
  head.name = line.file;
  head.format = line.flags.format;
  if (head.format.empty()) {
    SHERD_ASSIGN_OR_RETURN(head.format, GuessDataFormat(line.file));
  }
  if (!line.flags.tokenizer.empty()) {
    SHERD_RETURN_IF_ERROR(CheckFlag("--tokenizer", line.file, head.format));
  }
  TokenFormat format = TokenFormat::kText;
  SHERD_RETURN_IF_ERROR(TokenFormatFromName(head.format, format)
                            ? ReadTokens(format, line.tokens, head)
                            : ReadPairs(line.flags.tokenizer, line.tokens, head));
  return head;
}

nlohmann::ordered_json JsonOf(const Piece& piece) {
  nlohmann::ordered_json json = {{"tokens", piece.ids}};
  if (!piece.text.empty()) json["text"] = piece.text;
  return json;
}

std::string Json(const Head& head) {
  nlohmann::ordered_json json = {{"file", head.name}, {"format", head.format}};
  if (head.format != kPromptFormat) json.update(JsonOf(head.tokens));
  for (const Pair& pair : head.pairs) {
    json["sequences"].push_back({{"prompt", JsonOf(pair.prompt)},
                                 {"completion", JsonOf(pair.completion)},
                                 {"masked", pair.masked},
                                 {"unmasked", pair.unmasked}});
  }
  // Neither paths nor the last character need be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Lines(const Piece& piece) {
  std::string lines = absl::StrCat(absl::StrJoin(piece.ids, " "), "\n");
  if (!piece.text.empty()) {
    absl::StrAppend(&lines, PrintableText(MendUtf8(piece.text), 8 * kMostTokens), "\n");
  }
  return lines;
}

std::string Table(const Head& head) {
  if (head.format != kPromptFormat) return Lines(head.tokens);
  std::string table;
  for (const Pair& pair : head.pairs) {
    absl::StrAppend(&table, pair.masked, " masked and ", pair.unmasked,
                    " unmasked tokens\nprompt: ", Lines(pair.prompt),
                    "completion: ", Lines(pair.completion));
  }
  return table;
}

}  // namespace

DataSubcommand DeclareDataHead(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("head", "The first tokens of a file; bytes also as text");
  const auto line = std::make_shared<HeadLine>();
  command.add_option("FILE", line->file, "The file")->required()->option_text(" ");
  command.add_option("--tokens", line->tokens, "How many")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str()
      ->option_text("N");
  AddDataFlags(command, line->flags);
  return {&command, [line] {
            const absl::StatusOr<Head> head = ReadHead(*line);
            if (!head.ok()) return head.status();
            std::cout << (line->flags.output == "json" ? Json(*head) : Table(*head));
            return absl::OkStatus();
          }};
}

}  // namespace sherd
