#include "plan/presets.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_spec.h"

namespace sherd {
namespace {

struct PresetRow {
  absl::string_view name;
  int64_t layers;
  int64_t hidden;
  int64_t heads;
  int64_t vocab;
  int64_t context;
};

// A small model whose tokens are bytes, and the published GPT-2 sizes.
constexpr std::array<PresetRow, 5> kPresets = {{
    {"gpt2-bytes", 6, 384, 6, 256, 256},
    {"gpt2-124m", 12, 768, 12, 50257, 1024},
    {"gpt2-355m", 24, 1024, 16, 50257, 1024},
    {"gpt2-774m", 36, 1280, 20, 50257, 1024},
    {"gpt2-1.5b", 48, 1600, 25, 50257, 1024},
}};

v1::ModelSpec ModelOf(const PresetRow& row) {
  v1::ModelSpec model;
  model.set_preset(std::string(row.name));
  model.set_arch(v1::ARCHITECTURE_GPT2);
  model.set_layers(row.layers);
  model.set_hidden(row.hidden);
  model.set_heads(row.heads);
  model.set_kv_heads(row.heads);
  model.set_ffn(4 * row.hidden);
  model.set_vocab(row.vocab);
  model.set_context(row.context);
  model.set_tie_embeddings(true);
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
