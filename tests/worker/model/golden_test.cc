#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/worker/model/model_harness.h"
#include "worker/checkpoint/safetensors.h"

namespace sherd {
namespace {

// A file of tests/golden/gpt2_reference.py or llama_reference.py.
struct Golden {
  explicit Golden(const std::string& file) {
    const std::string path = std::string(SHERD_GOLDEN_DIR) + "/" + file;
    absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(path);
    EXPECT_TRUE(header.ok()) << header.status();
    metadata = header->metadata;
    std::ifstream stream(path, std::ios::binary);
    for (const SafetensorsEntry& entry : header->entries) {
      std::vector<float>& values = tensors[entry.name];
      values.resize(static_cast<size_t>(entry.bytes) / 4);
      stream.seekg(entry.offset);
      stream.read(reinterpret_cast<char*>(values.data()), entry.bytes);
      shapes[entry.name] = entry.shape;
    }
  }

  int64_t Size(const std::string& key) const { return std::stoll(metadata.at(key)); }
  double Real(const std::string& key) const { return std::stod(metadata.at(key)); }
  ModelShape shape() const {
    ModelShape shape;
    shape.layers = Size("layers");
    shape.hidden = Size("hidden");
    shape.heads = shape.kv_heads = Size("heads");
    if (metadata.count("kv_heads") > 0) AddLlama(shape);
    shape.ffn = Size("ffn");
    shape.vocab = Size("vocab");
    shape.context = Size("context");
    shape.tie_embeddings = Size("tied") == 1;
    return shape;
  }
  MicroBatch batch() const {
    return {shapes.at("inputs")[0], shapes.at("inputs")[1],
            reinterpret_cast<const int32_t*>(tensors.at("inputs").data()),
            reinterpret_cast<const int32_t*>(tensors.at("targets").data())};
  }

  void AddLlama(ModelShape& shape) const {
    shape.arch = Architecture::kLlama;
    shape.kv_heads = Size("kv_heads");
    shape.norm_eps = Real("norm_eps");
    shape.rotary.theta = Real("theta");
    shape.rotary.factor = Real("factor");
    shape.rotary.low_freq_factor = Real("low_freq_factor");
    shape.rotary.high_freq_factor = Real("high_freq_factor");
    shape.rotary.original_context = Size("original_context");
  }

  std::map<std::string, std::string> metadata;
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::vector<int64_t>> shapes;
};

class GoldenVectors : public testing::TestWithParam<const char*> {};

// No value differs by more than `tolerance` of the largest.
void ExpectNear(const float* values, const std::vector<float>& want, double tolerance,
                const std::string& name) {
  double largest = 0;
  for (const float value : want) largest = std::max(largest, std::abs(double{value}));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(values[i], want[i], tolerance * largest) << name << "[" << i << "]";
  }
}

// F5, F14: logits, loss and every gradient of an independent framework's double-precision run.
TEST_P(GoldenVectors, AreMatched) {
  const Golden golden(GetParam());
  const MicroBatch batch = golden.batch();
  ModelHarness model(golden.shape(), batch.batch, batch.tokens);
  for (const Unit& unit : model.inventory().units) {
    for (const Parameter& parameter : unit.parameters) {
      const std::vector<float>& values = golden.tensors.at("param." + parameter.name);
      ASSERT_EQ(golden.shapes.at("param." + parameter.name), parameter.shape);
      std::copy(values.begin(), values.end(), model.param(parameter.name));
    }
  }
  // Every logit carries a few fp32 roundings of sums of about forty terms: 1e-6 relative.
  if (golden.tensors.count("logits") > 0) {
    model.Loss(batch);
    ExpectNear(model.Logits(batch.batch * batch.tokens).data(), golden.tensors.at("logits"), 1e-5,
               "logits");
  }
  const double loss = model.Step(batch, static_cast<float>(golden.Real("scale")));
  EXPECT_NEAR(loss, golden.Real("loss"), 1e-5 * std::abs(loss));
  // Roundings accumulate over two blocks and 27 rows in units of the tensor's largest entry.
  for (const Unit& unit : model.inventory().units) {
    for (const Parameter& parameter : unit.parameters) {
      const std::vector<float>& want = golden.tensors.at("grad." + parameter.name);
      ASSERT_EQ(static_cast<int64_t>(want.size()), parameter.elements);
      ExpectNear(model.grad(parameter.name), want, 1e-5, parameter.name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpt2, GoldenVectors,
                         testing::Values("gpt2_tied.safetensors", "gpt2_untied.safetensors"));
// Own and shared heads of keys and values, and scaled rotary frequencies.
INSTANTIATE_TEST_SUITE_P(Llama, GoldenVectors,
                         testing::Values("llama_tied.safetensors", "llama_untied.safetensors",
                                         "llama_one_kv_head.safetensors",
                                         "llama_half_kv_heads.safetensors",
                                         "llama_scaled.safetensors"));

}  // namespace
}  // namespace sherd
