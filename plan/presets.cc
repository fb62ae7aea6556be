#include "plan/presets.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_spec.h"

namespace sherd {
namespace {

// A zero leaves a size to the architecture's default.
struct PresetRow {
  absl::string_view name;
  v1::Architecture arch;
  int64_t layers;
  int64_t hidden;
  int64_t heads;
  int64_t kv_heads;
  int64_t ffn;
  int64_t vocab;
  int64_t context;
  bool tied;
  double rope_theta = 0;
  double rope_factor = 0;  // 0: no scaling
};

constexpr v1::Architecture kGpt2 = v1::ARCHITECTURE_GPT2;
constexpr v1::Architecture kLlama = v1::ARCHITECTURE_LLAMA;

// Two small models whose tokens are bytes, the published GPT-2 sizes, a Llama of GPT-2's smallest
// size with the vocabulary of Llama 2, and published models of Meta: llama3-1b is Llama 3.2 1B,
// whose context is stretched by scaled frequencies; llama3-8b and llama3-70b are Llama 3, not 3.1:
// context 8192, no scaling.
constexpr std::array<PresetRow, 10> kPresets = {{
    {"gpt2-bytes", kGpt2, 6, 384, 6, 0, 0, 256, 256, true},
    {"gpt2-124m", kGpt2, 12, 768, 12, 0, 0, 50257, 1024, true},
    {"gpt2-355m", kGpt2, 24, 1024, 16, 0, 0, 50257, 1024, true},
    {"gpt2-774m", kGpt2, 36, 1280, 20, 0, 0, 50257, 1024, true},
    {"gpt2-1.5b", kGpt2, 48, 1600, 25, 0, 0, 50257, 1024, true},
    {"llama-15m", kLlama, 5, 512, 8, 4, 1408, 256, 256, true, 1e4},
    {"llama-160m", kLlama, 12, 768, 12, 12, 3072, 32000, 2048, false, 1e4},
    {"llama3-1b", kLlama, 16, 2048, 32, 8, 8192, 128256, 131072, true, 5e5, 32},
    {"llama3-8b", kLlama, 32, 4096, 32, 8, 14336, 128256, 8192, false, 5e5},
    {"llama3-70b", kLlama, 80, 8192, 64, 8, 28672, 128256, 8192, false, 5e5},
}};

v1::ModelSpec ModelOf(const PresetRow& row) {
  v1::ModelSpec model;
  model.set_preset(std::string(row.name));
  model.set_arch(row.arch);
  model.set_layers(row.layers);
  model.set_hidden(row.hidden);
  model.set_heads(row.heads);
  model.set_kv_heads(row.kv_heads);
  model.set_ffn(row.ffn);
  model.set_vocab(row.vocab);
  model.set_context(row.context);
  model.set_tie_embeddings(row.tied);
  model.set_rope_theta(row.rope_theta);
  if (row.rope_factor != 0) model.mutable_rope_scaling()->set_factor(row.rope_factor);
  return model;
}

}  // namespace

std::optional<v1::ModelSpec> FindPreset(absl::string_view name) {
  for (const PresetRow& row : kPresets) {
    if (row.name == name) return ModelOf(row);
  }
  return std::nullopt;
}

std::vector<absl::string_view> PresetNames() {
  std::vector<absl::string_view> names;
  for (const PresetRow& row : kPresets) names.push_back(row.name);
  return names;
}

}  // namespace sherd
