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
#include "worker/data/data_command.h"
#include "worker/data/guess_format.h"
#include "worker/data/token_file.h"

namespace sherd {
namespace {

// What a terminal and a reader can bear.
constexpr int64_t kMostTokens = 1 << 20;

struct HeadLine {
  std::string file;
  std::string output = "table";
  std::string format;
  int64_t tokens = 32;
};

struct Head {
  std::string name;
  TokenFormat format = TokenFormat::kText;
  std::vector<int32_t> ids;
  // Where ids are bytes.
  std::string text;
};

absl::StatusOr<Head> ReadHead(const HeadLine& line) {
  Head head;
  if (!TokenFormatFromName(line.format, head.format)) {
    SHERD_ASSIGN_OR_RETURN(head.format, GuessFormat("", line.file));
  }
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file,
                         OpenTokenFile("", line.file, head.format));
  head.name = file->name();
  const int64_t count = std::min(line.tokens, file->tokens());
  head.ids.resize(static_cast<size_t>(count));
  SHERD_RETURN_IF_ERROR(file->Read(0, count, head.ids.data()));
  if (head.format == TokenFormat::kText || head.format == TokenFormat::kJsonl) {
    for (const int32_t id : head.ids) head.text.push_back(static_cast<char>(id));
  }
  return head;
}

std::string Json(const Head& head) {
  nlohmann::ordered_json json = {
      {"file", head.name}, {"format", std::string(NameOf(head.format))}, {"tokens", head.ids}};
  if (!head.text.empty()) json["text"] = head.text;
  // Neither paths nor the last character need be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Table(const Head& head) {
  std::string table = absl::StrCat(absl::StrJoin(head.ids, " "), "\n");
  if (!head.text.empty()) {
    absl::StrAppend(&table, PrintableText(MendUtf8(head.text), 8 * kMostTokens), "\n");
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
  AddDataOptions(command, line->output, line->format);
  return {&command, [line] {
            const absl::StatusOr<Head> head = ReadHead(*line);
            if (!head.ok()) return head.status();
            std::cout << (line->output == "json" ? Json(*head) : Table(*head));
            return absl::OkStatus();
          }};
}

}  // namespace sherd
