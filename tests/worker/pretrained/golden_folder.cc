#include "tests/worker/pretrained/golden_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "common/check.h"
#include "gtest/gtest.h"
#include "plan/parameters.h"
#include "tests/support/temporary_directory.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/pretrained/published_tensors.h"

namespace sherd {

std::string GoldenPath(const std::string& name) {
  return std::string(SHERD_GOLDEN_DIR) + "/pretrained/" + name;
}

ElementType GoldenType(const std::string& name) {
  for (const char* type : {"bf16", "fp16"}) {
    if (absl::StrContains(name, type)) return *ElementTypeFromName(type);
  }
  return ElementType::kF32;
}

RawTensors ReadSafetensors(const std::string& path) {
  const absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(path);
  EXPECT_TRUE(header.ok()) << header.status();
  RawTensors tensors;
  if (!header.ok()) return tensors;
  const std::string file = ReadFile(path);
  for (const SafetensorsEntry& entry : header->entries) {
    tensors[entry.name] = {
        entry.dtype, entry.shape,
        file.substr(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes))};
  }
  return tensors;
}

void WriteSafetensors(const std::string& path, const RawTensors& tensors) {
  std::vector<SafetensorsEntry> entries;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
    entries.push_back(entry);
    data += tensor.bytes;
  }
  std::ofstream(path, std::ios::binary)
      << FormatSafetensorsHeader(entries, {{"format", "pt"}}) << data;
}

RawTensors ReadFolder(const std::string& folder) {
  RawTensors all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!absl::StartsWith(file, "model") || !absl::EndsWith(file, ".safetensors")) continue;
    all.merge(ReadSafetensors(entry.path().string()));
  }
  return all;
}

RawTensors ReadFolderAsExported(const std::string& folder) {
  const absl::StatusOr<PretrainedFolder> opened = PretrainedFolder::Open("", folder);
  EXPECT_TRUE(opened.ok()) << opened.status();
  std::map<std::string, std::string> names;
  for (const PublishedTensor& tensor : PublishedTensorsOf(opened->shape())) {
    names[tensor.parameter] = tensor.name;
  }
  RawTensors exported;
  for (auto& [name, tensor] : ReadFolder(folder)) {
    const auto found = names.find(ParameterNameOf(opened->shape().arch, name));
    if (found != names.end()) exported[found->second] = tensor;
  }
  EXPECT_EQ(exported.size(), names.size());
  return exported;
}

void CopyGolden(const std::string& name, const std::string& directory) {
  std::filesystem::create_directories(directory);
  std::filesystem::copy_file(GoldenPath(name) + "/config.json", directory + "/config.json");
  WriteSafetensors(directory + "/model.safetensors", ReadFolder(GoldenPath(name)));
}

WholeWeights LoadWhole(const PretrainedFolder& folder) {
  WholeWeights weights;
  std::vector<TensorTarget> targets;
  const Inventory inventory = BuildInventory(folder.shape());
  for (const Unit& unit : inventory.units) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<float>& values = weights[parameter.name];
      values.assign(static_cast<size_t>(parameter.elements), -77.0f);
      targets.push_back({parameter.name, parameter.slice.shape, parameter.slice.columns, 0,
                         parameter.elements, values.data()});
    }
  }
  const absl::StatusOr<int64_t> read = folder.Load(targets, 2);
  EXPECT_TRUE(read.ok()) << read.status();
  return weights;
}

}  // namespace sherd
