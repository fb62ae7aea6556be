#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/pretrained/pretrained_folder.h"

namespace sherd {

// The folders of tests/golden/pretrained.py.
inline constexpr const char* kGoldenFolders[] = {
    "gpt2_fp32",         "gpt2_untied_fp16_sharded",  "gpt2_plain_bf16",
    "llama_untied_fp32", "llama_scaled_bf16_sharded", "llama_tied_fp16"};
std::string GoldenPath(const std::string& name);
ElementType GoldenType(const std::string& name);

// A tensor as it lies in a file.
struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
  friend bool operator==(const RawTensor&, const RawTensor&) = default;
};
using RawTensors = std::map<std::string, RawTensor>;

RawTensors ReadSafetensors(const std::string& path);
void WriteSafetensors(const std::string& path, const RawTensors& tensors);
// Of all weight files of a folder.
RawTensors ReadFolder(const std::string& folder);
// As an export writes them: without constants and tied heads, by the language model's names.
RawTensors ReadFolderAsExported(const std::string& folder);

// Copies a golden folder, in one file, to `directory`, where tests damage it.
void CopyGolden(const std::string& name, const std::string& directory);

// What the folder says the parameters are, each whole, by our names.
using WholeWeights = std::map<std::string, std::vector<float>>;
WholeWeights LoadWhole(const PretrainedFolder& folder);

}  // namespace sherd
