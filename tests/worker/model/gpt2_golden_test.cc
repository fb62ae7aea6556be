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

// A file of tests/golden/gpt2_reference.py.
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
  ModelShape shape() const {
    ModelShape shape;
    shape.layers = Size("layers");
    shape.hidden = Size("hidden");
    shape.heads = shape.kv_heads = Size("heads");
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

  std::map<std::string, std::string> metadata;
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::vector<int64_t>> shapes;
};

class Gpt2Golden : public testing::TestWithParam<const char*> {};

// Loss and every gradient of an independent framework's double-precision run. F5.
TEST_P(Gpt2Golden, MatchesTheReferenceFramework) {
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
  const double loss = model.Step(batch, std::stof(golden.metadata.at("scale")));
  // Every logit carries a few fp32 roundings of sums of about forty terms: 1e-6 relative.
  EXPECT_NEAR(loss, std::stod(golden.metadata.at("loss")), 1e-5 * std::abs(loss));
  for (const Unit& unit : model.inventory().units) {
    for (const Parameter& parameter : unit.parameters) {
      const std::vector<float>& want = golden.tensors.at("grad." + parameter.name);
      double largest = 0;
      for (const float value : want) largest = std::max(largest, std::abs(double{value}));
      // Roundings accumulate over two blocks and 27 rows in units of the tensor's largest entry.
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(model.grad(parameter.name)[i], want[i], 1e-5 * largest)
            << parameter.name << "[" << i << "]";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, Gpt2Golden,
                         testing::Values("gpt2_tied.safetensors", "gpt2_untied.safetensors"));

}  // namespace
}  // namespace sherd
