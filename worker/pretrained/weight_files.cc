#include "worker/pretrained/weight_files.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/bounded_json.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr int64_t kMaxTensors = 1 << 20;

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// Of a file of the folder itself.
bool IsPlainName(absl::string_view file) {
  return !file.empty() && file.front() != '.' && file.find('/') == absl::string_view::npos &&
         file.find('\0') == absl::string_view::npos;
}

// Which file holds which tensor, by name.
using WeightMap = std::map<std::string, std::string>;

absl::StatusOr<WeightMap> ParseIndex(absl::string_view text) {
  SHERD_ASSIGN_OR_RETURN(const nlohmann::json json,
                         ParseBoundedJson(text, {.depth = 4, .values = kMaxTensors}));
  const auto found = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || found == json.end() || !found->is_object()) {
    return absl::InvalidArgumentError("it has no object \"weight_map\"");
  }
  WeightMap map;
  for (const auto& [name, file] : found->items()) {
    if (!file.is_string() || !IsPlainName(file.get<std::string>()) ||
        !absl::EndsWith(file.get<std::string>(), ".safetensors")) {
      return absl::InvalidArgumentError(
          absl::StrCat("it says that \"", name, "\" is in ", file.dump().substr(0, 200),
                       ", which is not the name of a .safetensors file of the folder"));
    }
    map[name] = file.get<std::string>();
  }
  if (map.empty()) return absl::InvalidArgumentError("its \"weight_map\" is empty");
  return map;
}

absl::Status AddFile(const std::string& root, const std::string& path, WeightFiles& weights) {
  SHERD_ASSIGN_OR_RETURN(InputFile file, OpenBelow(root, path));
  SHERD_ASSIGN_OR_RETURN(
      SafetensorsHeader header,
      ReadSafetensorsHeader(path, file.bytes(), [&](int64_t offset, int64_t bytes, void* out) {
        return file.Read(offset, bytes, out);
      }));
  weights.header_bytes += header.bytes;
  if (weights.header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the headers of the weights have more than ", kMaxHeaderBytes, " bytes together"));
  }
  for (SafetensorsEntry& entry : header.entries) {
    weights.entries.push_back({weights.files.size(), std::move(entry)});
  }
  weights.files.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status CheckIndex(const WeightMap& map, const std::vector<std::string>& names,
                        const WeightFiles& weights) {
  WeightMap missing = map;
  for (const WeightFiles::Entry& entry : weights.entries) {
    const auto indexed = map.find(entry.tensor.name);
    if (indexed == map.end() || indexed->second != names[entry.file]) {
      return absl::InvalidArgumentError(absl::StrCat("it does not say that \"", entry.tensor.name,
                                                     "\" is in ", names[entry.file],
                                                     ", where it is"));
    }
    missing.erase(entry.tensor.name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("it says that \"", missing.begin()->first,
                                                 "\" is in ", missing.begin()->second,
                                                 ", where it is not"));
}

absl::StatusOr<WeightFiles> OpenIndexed(const std::string& root, const std::string& folder,
                                        const std::string& text) {
  const std::string path = absl::StrCat(folder, "/", kWeightsIndexFile);
  const absl::StatusOr<WeightMap> map = ParseIndex(text);
  if (!map.ok()) return InFile(path, map.status());
  std::map<std::string, size_t> files;
  for (const auto& [tensor, file] : *map) files.emplace(file, 0);
  if (files.size() > kMaxWeightFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": it names more than ", kMaxWeightFiles, " files"));
  }
  WeightFiles weights;
  std::vector<std::string> names;
  for (const auto& [file, unused] : files) {
    names.push_back(file);
    SHERD_RETURN_IF_ERROR(AddFile(root, absl::StrCat(folder, "/", file), weights));
  }
  if (absl::Status agree = CheckIndex(*map, names, weights); !agree.ok()) {
    return InFile(path, agree);
  }
  return weights;
}

// Weights in Python's own format execute what they hold when they are loaded; nothing else reads
// it.
absl::Status NoWeights(const std::string& root, const std::string& folder) {
  const absl::StatusOr<DirectoryNames> names = ListBelow(root, folder);
  std::string pickled;
  if (names.ok()) {
    for (const std::string& file : names->files) {
      if (absl::EndsWith(file, ".bin") || absl::EndsWith(file, ".pt")) pickled = file;
    }
  }
  return absl::NotFoundError(absl::StrCat(
      folder, " holds neither ", kWeightsFile, " nor ", kWeightsIndexFile,
      pickled.empty() ? ""
                      : absl::StrCat("; ", pickled,
                                     " is not read: have transformers write it anew "
                                     "with save_pretrained(…, safe_serialization=True)")));
}

}  // namespace

absl::StatusOr<std::string> ReadWholeBelow(const std::string& root, const std::string& path,
                                           int64_t most) {
  SHERD_ASSIGN_OR_RETURN(const InputFile file, OpenBelow(root, path));
  if (file.bytes() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is larger than the ", most, " bytes that it may have"));
  }
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  SHERD_RETURN_IF_ERROR(file.Read(0, file.bytes(), text.data()));
  return text;
}

absl::StatusOr<WeightFiles> OpenWeightFiles(const std::string& root, const std::string& folder) {
  WeightFiles weights;
  // The common stack looks for the single file first, too.
  const absl::Status single = AddFile(root, absl::StrCat(folder, "/", kWeightsFile), weights);
  if (single.ok()) return weights;
  if (!absl::IsNotFound(single)) return single;
  const absl::StatusOr<std::string> index =
      ReadWholeBelow(root, absl::StrCat(folder, "/", kWeightsIndexFile), kMaxWeightsIndexBytes);
  if (index.ok()) return OpenIndexed(root, folder, *index);
  return absl::IsNotFound(index.status()) ? NoWeights(root, folder) : index.status();
}

}  // namespace sherd
