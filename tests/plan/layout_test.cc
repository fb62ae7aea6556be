#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/groups.h"
#include "plan/parameters.h"
#include "plan/shard_layout.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

ModelShape Shape(int64_t layers, int64_t hidden, int64_t heads, int64_t vocab, int64_t context,
                 bool tied) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.kv_heads = heads;
  shape.ffn = 4 * hidden;
  shape.vocab = vocab;
  shape.context = context;
  shape.tie_embeddings = tied;
  return shape;
}

TEST(Parameters, CountsWhatThePublishedModelsHave) {
  EXPECT_EQ(BuildInventory(Shape(12, 768, 12, 50257, 1024, true)).elements, 124439808);
  EXPECT_EQ(BuildInventory(Shape(24, 1024, 16, 50257, 1024, true)).elements, 354823168);
  EXPECT_EQ(BuildInventory(Shape(36, 1280, 20, 50257, 1024, true)).elements, 774030080);
  EXPECT_EQ(BuildInventory(Shape(48, 1600, 25, 50257, 1024, true)).elements, 1557611200);
}

// The names, the shapes and what decays of a published checkpoint's layer.
TEST(Parameters, OfALlamaBearThePublishedNames) {
  ModelShape shape = Shape(1, 24, 4, 37, 11, false);
  shape.arch = Architecture::kLlama;
  shape.kv_heads = 2;
  shape.ffn = 10;
  std::vector<std::string> described;
  for (const Unit& unit : BuildInventory(shape).units) {
    for (const Parameter& parameter : unit.parameters) {
      described.push_back(absl::StrCat(parameter.name, " ", absl::StrJoin(parameter.shape, "x"),
                                       parameter.decays ? " decays" : ""));
    }
  }
  EXPECT_THAT(described, ElementsAre("model.embed_tokens.weight 37x24 decays",
                                     "model.layers.0.input_layernorm.weight 24",
                                     "model.layers.0.self_attn.q_proj.weight 24x24 decays",
                                     "model.layers.0.self_attn.k_proj.weight 12x24 decays",
                                     "model.layers.0.self_attn.v_proj.weight 12x24 decays",
                                     "model.layers.0.self_attn.o_proj.weight 24x24 decays",
                                     "model.layers.0.post_attention_layernorm.weight 24",
                                     "model.layers.0.mlp.gate_proj.weight 10x24 decays",
                                     "model.layers.0.mlp.up_proj.weight 10x24 decays",
                                     "model.layers.0.mlp.down_proj.weight 24x10 decays",
                                     "model.norm.weight 24", "lm_head.weight 37x24 decays"));
}

TEST(Parameters, LieOneAfterAnotherWithoutGaps) {
  for (const bool tied : {true, false}) {
    const Inventory inventory = BuildInventory(Shape(3, 20, 5, 37, 11, tied));
    ASSERT_EQ(inventory.units.size(), 5u);
    for (const Unit& unit : inventory.units) {
      int64_t offset = 0;
      for (const Parameter& parameter : unit.parameters) {
        EXPECT_EQ(parameter.offset, offset) << parameter.name;
        offset += parameter.elements;
      }
      EXPECT_EQ(unit.elements, offset) << unit.name;
    }
  }
}

// F13: decay is a property of a parameter, not of the flat buffer that it lies in.
TEST(Parameters, OnlyMatricesDecay) {
  const Inventory inventory = BuildInventory(Shape(2, 8, 2, 16, 4, false));
  for (const Unit& unit : inventory.units) {
    for (const Parameter& parameter : unit.parameters) {
      EXPECT_EQ(parameter.decays, parameter.shape.size() == 2) << parameter.name;
    }
  }
}

// F5: a tied head has no weights of its own.
TEST(Parameters, ATiedHeadHasOnlyItsNorm) {
  EXPECT_EQ(BuildInventory(Shape(1, 8, 2, 16, 4, true)).units.back().parameters.size(), 2u);
  EXPECT_EQ(BuildInventory(Shape(1, 8, 2, 16, 4, false)).units.back().parameters.size(), 3u);
}

TEST(ShardLayout, SplitsEightParametersOverFourRanksInPairs) {
  const UnitLayout layout = LayoutUnit(8, 4, /*alignment=*/1);
  EXPECT_EQ(layout.Shard(0), (ElementRange{0, 2}));
  EXPECT_EQ(layout.Shard(1), (ElementRange{2, 4}));
  EXPECT_EQ(layout.Shard(2), (ElementRange{4, 6}));
  EXPECT_EQ(layout.Shard(3), (ElementRange{6, 8}));
  EXPECT_EQ(layout.padded_elements, 8);
}

// F10: sizes that do not divide by the world are padded, and every element has exactly one owner.
TEST(ShardLayout, OwnsEveryElementExactlyOnceAtAnySizeAndDegree) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t elements = static_cast<int64_t>(random() % 5000);
    const int degree = 1 + static_cast<int>(random() % 17);
    const int64_t alignment = int64_t{1} << (random() % 7);
    const UnitLayout layout = LayoutUnit(elements, degree, alignment);
    int64_t owned = 0;
    int64_t expected_begin = 0;
    for (int index = 0; index < degree; ++index) {
      const ElementRange filled = layout.Filled(index);
      EXPECT_EQ(filled.begin, std::min(expected_begin, elements));
      EXPECT_EQ(layout.Shard(index).size(), layout.shard_elements);
      EXPECT_EQ(layout.Shard(index).begin % alignment, 0);
      expected_begin = layout.Shard(index).end;
      owned += filled.size();
    }
    EXPECT_EQ(owned, elements);
    EXPECT_EQ(layout.padded_elements, expected_begin);
    EXPECT_LT(layout.padded_elements - elements, degree * alignment + degree);
  }
}

TEST(ShardLayout, DescribesOneShardAUnit) {
  const Inventory inventory = BuildInventory(Shape(2, 12, 3, 17, 5, true));
  const ShardLayout layout = BuildShardLayout(inventory, 3);
  const std::vector<v1::UnitShard> shards = DescribeShards(inventory, layout, 2);
  ASSERT_EQ(shards.size(), 4u);
  EXPECT_EQ(shards[1].unit(), "h.0");
  EXPECT_EQ(shards[1].unit_elements(), inventory.units[1].elements);
  EXPECT_EQ(shards[1].begin(), layout.units[1].Shard(2).begin);
  EXPECT_EQ(shards[1].end(), layout.units[1].padded_elements);
}

}  // namespace
}  // namespace sherd
