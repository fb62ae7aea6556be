#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iostream>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/data_command.h"
#include "worker/data/guess_format.h"
#include "worker/data/open_formats.h"
#include "worker/data/path_patterns.h"
#include "worker/data/token_file.h"

namespace sherd {
namespace {

constexpr int64_t kReadTokens = 1 << 16;

struct InfoLine {
  std::vector<std::string> files;
  std::string output = "table";
  std::string format;
  bool checksum = false;
};

// What one file holds.
struct FileInfo {
  std::string name;
  TokenFormat format = TokenFormat::kText;
  IdType type = IdType::kU8;
  int64_t tokens = 0;
  int64_t documents = 0;
  int32_t least = std::numeric_limits<int32_t>::max();
  int32_t most = 0;
  int64_t bytes = 0;
  // XXH3 of the ids as 32-bit numbers: the same for the same tokens in any format. "": not asked
  // for.
  std::string checksum;
};

absl::Status ReadAll(const TokenFile& file, bool checksum, FileInfo& info) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash(XXH3_createState(),
                                                                             &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<int32_t> ids(kReadTokens);
  for (int64_t begin = 0; begin < file.tokens(); begin += kReadTokens) {
    const int64_t count = std::min(kReadTokens, file.tokens() - begin);
    SHERD_RETURN_IF_ERROR(file.Read(begin, count, ids.data()));
    const auto [least, most] = std::minmax_element(ids.begin(), ids.begin() + count);
    info.least = std::min(info.least, *least);
    info.most = std::max(info.most, *most);
    if (checksum) {
      XXH3_64bits_update(hash.get(), ids.data(), static_cast<size_t>(count) * sizeof(int32_t));
    }
  }
  if (checksum) info.checksum = absl::StrFormat("%016x", XXH3_64bits_digest(hash.get()));
  return absl::OkStatus();
}

absl::StatusOr<FileInfo> Describe(const std::string& path, TokenFormat format, bool checksum) {
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file, OpenTokenFile("", path, format));
  FileInfo info;
  info.name = file->name();
  info.format = format;
  info.type = file->type();
  info.tokens = file->tokens();
  info.documents = file->documents();
  info.bytes = file->bytes();
  SHERD_RETURN_IF_ERROR(ReadAll(*file, checksum, info));
  return info;
}

absl::StatusOr<std::vector<FileInfo>> DescribeAll(const InfoLine& line) {
  std::vector<FileInfo> infos;
  for (const std::string& name : line.files) {
    TokenFormat format = TokenFormat::kText;
    const bool given = TokenFormatFromName(line.format, format);
    SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                           ExpandPatterns("", {name}, format));
    for (const std::string& path : paths) {
      if (!given) {
        SHERD_ASSIGN_OR_RETURN(format, GuessFormat("", path));
      }
      // A pattern matches both files of a pair.
      if (format == TokenFormat::kMegatron && !infos.empty() &&
          infos.back().name == MegatronPrefix(path) + ".bin") {
        continue;
      }
      SHERD_ASSIGN_OR_RETURN(FileInfo info, Describe(path, format, line.checksum));
      infos.push_back(std::move(info));
    }
  }
  return infos;
}

std::string Json(const std::vector<FileInfo>& infos) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FileInfo& info : infos) {
    nlohmann::ordered_json one = {{"file", info.name},
                                  {"format", std::string(NameOf(info.format))},
                                  {"type", std::string(NameOf(info.type))},
                                  {"tokens", info.tokens},
                                  {"documents", nullptr},
                                  {"min", info.least},
                                  {"max", info.most},
                                  {"bytes", info.bytes}};
    if (info.documents >= 0) one["documents"] = info.documents;
    if (!info.checksum.empty()) one["checksum"] = info.checksum;
    list.push_back(std::move(one));
  }
  // Paths need not be UTF-8.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Table(const std::vector<FileInfo>& infos) {
  using Row = std::vector<std::string>;
  std::vector<Row> rows = {
      {"FORMAT", "TYPE", "TOKENS", "DOCUMENTS", "MIN", "MAX", "BYTES", "FILE"}};
  const bool checksums = !infos.empty() && !infos.front().checksum.empty();
  if (checksums) rows.front().insert(rows.front().end() - 1, "CHECKSUM");
  for (const FileInfo& info : infos) {
    Row row = {
        std::string(NameOf(info.format)), std::string(NameOf(info.type)),
        absl::StrCat(info.tokens),        info.documents < 0 ? "-" : absl::StrCat(info.documents),
        absl::StrCat(info.least),         absl::StrCat(info.most),
        absl::StrCat(info.bytes)};
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
      "info", "Format, tokens, documents, smallest and largest id, bytes; reads all of each file");
  const auto line = std::make_shared<InfoLine>();
  command.add_option("FILE", line->files, "Files, or patterns of their names")
      ->required()
      ->option_text(" ");
  AddDataOptions(command, line->output, line->format);
  command.add_flag("--checksum", line->checksum,
                   "XXH3 of the ids as 32-bit numbers: equal for equal tokens in any format");
  return {&command, [line] {
            const absl::StatusOr<std::vector<FileInfo>> infos = DescribeAll(*line);
            if (!infos.ok()) return infos.status();
            std::cout << (line->output == "json" ? Json(*infos) : Table(*infos));
            return absl::OkStatus();
          }};
}

}  // namespace sherd
