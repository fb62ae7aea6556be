#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/open_formats.h"
#include "worker/data/path_patterns.h"
#include "worker/data/roots.h"
#include "worker/data/token_file.h"
#include "worker/dataset/data_commands.h"
#include "worker/dataset/prompt_look.h"
#include "worker/dataset/text_codec.h"

namespace sherd {
namespace {

constexpr int64_t kReadTokens = 1 << 16;
constexpr int64_t kMostSequence = int64_t{1} << 30;

struct InfoLine {
  std::vector<std::string> files;
  DataFlags flags;
  // Of prompts and completions; 0: whole lines.
  int64_t seq_len = 0;
  bool checksum = false;
};

// Of prompts and completions.
struct PromptInfo {
  // Tokens that the loss counts.
  int64_t unmasked = 0;
  // Lines of which it counts none.
  int64_t left_out = 0;
};

// What one file holds.
struct FileInfo {
  std::string name;
  std::string format;
  IdType type = IdType::kU8;
  int64_t tokens = 0;
  int64_t documents = 0;
  int32_t least = 0;
  int32_t most = 0;
  int64_t bytes = 0;
  // XXH3 of the ids as 32-bit numbers: the same for the same tokens in any format. "": not asked
  // for.
  std::string checksum;
  std::optional<PromptInfo> prompts;
};

// What is told of ids, whatever holds them.
class IdSummary {
 public:
  IdSummary() { XXH3_64bits_reset(hash_.get()); }

  // `Id` has 32 bits.
  template <typename Id>
  void Add(absl::Span<const Id> ids) {
    static_assert(sizeof(Id) == sizeof(int32_t));
    if (ids.empty()) return;
    const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
    least_ = std::min(least_, static_cast<int32_t>(*least));
    most_ = std::max(most_, static_cast<int32_t>(*most));
    XXH3_64bits_update(hash_.get(), ids.data(), ids.size() * sizeof(Id));
  }
  void Tell(bool checksum, FileInfo& info) const {
    info.least = least_;
    info.most = most_;
    if (checksum) info.checksum = absl::StrFormat("%016x", XXH3_64bits_digest(hash_.get()));
  }

 private:
  int32_t least_ = std::numeric_limits<int32_t>::max();
  int32_t most_ = 0;
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash_{XXH3_createState(),
                                                                              &XXH3_freeState};
};

absl::Status ReadAll(const TokenFile& file, IdSummary& summary) {
  std::vector<int32_t> ids(kReadTokens);
  for (int64_t begin = 0; begin < file.tokens(); begin += kReadTokens) {
    const int64_t count = std::min(kReadTokens, file.tokens() - begin);
    SHERD_RETURN_IF_ERROR(file.Read(begin, count, ids.data()));
    summary.Add(absl::MakeConstSpan(ids).first(static_cast<size_t>(count)));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileInfo> Describe(const std::string& path, TokenFormat format, bool checksum) {
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file, OpenTokenFile("", path, format));
  FileInfo info;
  info.name = file->name();
  info.format = std::string(NameOf(format));
  info.type = file->type();
  info.tokens = file->tokens();
  info.documents = file->documents();
  info.bytes = file->bytes();
  IdSummary summary;
  SHERD_RETURN_IF_ERROR(ReadAll(*file, summary));
  summary.Tell(checksum, info);
  return info;
}

// As training takes its lines.
absl::StatusOr<FileInfo> DescribePrompts(const std::string& path, const TextCodec& codec,
                                         int64_t seq_len, bool checksum) {
  SHERD_ASSIGN_OR_RETURN(const InputFile file, OpenBelow("", path));
  FileInfo info;
  info.name = path;
  info.format = std::string(kPromptFormat);
  info.type = codec.is_bytes() ? IdType::kU8 : IdType::kU32;
  info.bytes = file.bytes();
  info.documents = 0;
  PromptInfo prompts;
  IdSummary summary;
  SHERD_RETURN_IF_ERROR(
      ReadPrompts(path, codec, seq_len, [&](const PromptLine& line, int64_t counted) {
        ++info.documents;
        prompts.left_out += counted == 0 ? 1 : 0;
        if (counted == 0) return true;
        prompts.unmasked += counted;
        info.tokens += static_cast<int64_t>(line.tokens.size());
        summary.Add(absl::MakeConstSpan(line.tokens));
        return true;
      }));
  summary.Tell(checksum, info);
  if (info.tokens == 0) info.least = 0;
  info.prompts = prompts;
  return info;
}

absl::StatusOr<std::vector<FileInfo>> DescribeAll(const InfoLine& line) {
  const DataFlags& flags = line.flags;
  SHERD_ASSIGN_OR_RETURN(const TextCodec codec,
                         TextCodec::Load(flags.tokenizer.empty() ? "bytes" : flags.tokenizer));
  std::vector<FileInfo> infos;
  for (const std::string& name : line.files) {
    TokenFormat given = TokenFormat::kText;
    TokenFormatFromName(flags.format, given);
    SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> paths, ExpandPatterns("", {name}, given));
    for (const std::string& path : paths) {
      std::string format = flags.format;
      if (format.empty()) {
        SHERD_ASSIGN_OR_RETURN(format, GuessDataFormat(path));
      }
      // A pattern matches both files of a pair.
      if (format == NameOf(TokenFormat::kMegatron) && !infos.empty() &&
          infos.back().name == MegatronPrefix(path) + ".bin") {
        continue;
      }
      if (!flags.tokenizer.empty()) SHERD_RETURN_IF_ERROR(CheckFlag("--tokenizer", path, format));
      if (line.seq_len > 0) SHERD_RETURN_IF_ERROR(CheckFlag("--seq-len", path, format));
      TokenFormat tokens = TokenFormat::kText;
      SHERD_ASSIGN_OR_RETURN(FileInfo info,
                             TokenFormatFromName(format, tokens)
                                 ? Describe(path, tokens, line.checksum)
                                 : DescribePrompts(path, codec, line.seq_len, line.checksum));
      infos.push_back(std::move(info));
    }
  }
  return infos;
}

std::string Json(const std::vector<FileInfo>& infos) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FileInfo& info : infos) {
    nlohmann::ordered_json one = {
        {"file", info.name},     {"format", info.format}, {"type", std::string(NameOf(info.type))},
        {"tokens", info.tokens}, {"documents", nullptr},  {"min", info.least},
        {"max", info.most},      {"bytes", info.bytes}};
    if (info.documents >= 0) one["documents"] = info.documents;
    if (!info.checksum.empty()) one["checksum"] = info.checksum;
    if (info.prompts) {
      one["masked"] = info.tokens - info.prompts->unmasked;
      one["unmasked"] = info.prompts->unmasked;
      one["left_out"] = info.prompts->left_out;
    }
    list.push_back(std::move(one));
  }
  // Paths need not be UTF-8.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Table(const std::vector<FileInfo>& infos) {
  using Row = std::vector<std::string>;
  const bool checksums = !infos.empty() && !infos.front().checksum.empty();
  const bool prompts = std::any_of(infos.begin(), infos.end(),
                                   [](const FileInfo& info) { return info.prompts.has_value(); });
  std::vector<Row> rows = {{"FORMAT", "TYPE", "TOKENS", "DOCUMENTS", "MIN", "MAX", "BYTES"}};
  if (prompts) rows.front().insert(rows.front().end(), {"MASKED", "UNMASKED", "LEFT OUT"});
  if (checksums) rows.front().push_back("CHECKSUM");
  rows.front().push_back("FILE");
  for (const FileInfo& info : infos) {
    Row row = {info.format,
               std::string(NameOf(info.type)),
               absl::StrCat(info.tokens),
               info.documents < 0 ? "-" : absl::StrCat(info.documents),
               absl::StrCat(info.least),
               absl::StrCat(info.most),
               absl::StrCat(info.bytes)};
    if (info.prompts) {
      row.push_back(absl::StrCat(info.tokens - info.prompts->unmasked));
      row.push_back(absl::StrCat(info.prompts->unmasked));
      row.push_back(absl::StrCat(info.prompts->left_out));
    } else if (prompts) {
      row.insert(row.end(), 3, "-");
    }
    if (checksums) row.push_back(info.checksum);
    row.push_back(info.name);
    rows.push_back(std::move(row));
  }
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string table;
  for (const Row& row : rows) {
    for (size_t c = 0; c + 1 < row.size(); ++c) {
      absl::StrAppend(&table, row[c], std::string(widths[c] + 2 - row[c].size(), ' '));
    }
    absl::StrAppend(&table, row.back(), "\n");
  }
  return table;
}

}  // namespace

DataSubcommand DeclareDataInfo(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "info",
      "Format, tokens, documents, smallest and largest id, bytes, and which tokens of prompts and "
      "completions count; reads all of each file");
  const auto line = std::make_shared<InfoLine>();
  command.add_option("FILE", line->files, "Files, or patterns of their names")
      ->required()
      ->option_text(" ");
  AddDataFlags(command, line->flags);
  command
      .add_option(
          "--seq-len", line->seq_len,
          "Counts prompts and completions as training does with this train.seq_len (default: "
          "whole lines)")
      ->check(CLI::Range(int64_t{1}, kMostSequence))
      ->option_text("T");
  command.add_flag("--checksum", line->checksum,
                   "XXH3 of the ids as 32-bit numbers: equal for equal tokens in any format");
  return {&command, [line] {
            const absl::StatusOr<std::vector<FileInfo>> infos = DescribeAll(*line);
            if (!infos.ok()) return infos.status();
            std::cout << (line->flags.output == "json" ? Json(*infos) : Table(*infos));
            return absl::OkStatus();
          }};
}

}  // namespace sherd
