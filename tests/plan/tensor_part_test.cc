#include "plan/tensor_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "plan/parameters.h"

namespace sherd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

ModelShape Shape(Architecture arch, int64_t heads, int64_t kv_heads, int64_t vocab) {
  ModelShape shape;
  shape.arch = arch;
  shape.layers = 2;
  shape.hidden = heads * 6;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.ffn = 24;
  shape.vocab = vocab;
  shape.context = 7;
  shape.tie_embeddings = false;
  return shape;
}

// How many members hold each element of each tensor.
std::map<std::string, std::vector<int>> CountHolders(const ModelShape& shape, int degree) {
  std::map<std::string, std::vector<int>> holders;
  for (int index = 0; index < degree; ++index) {
    for (const Unit& unit : BuildInventory(shape, {degree, index}).units) {
      for (const Parameter& parameter : unit.parameters) {
        const int64_t columns = parameter.slice.tensor_columns();
        std::vector<int>& counts = holders[parameter.name];
        counts.resize(static_cast<size_t>(parameter.slice.tensor_rows() * columns));
        for (const SliceRun& run : RunsOf(parameter, 0, parameter.elements)) {
          for (int64_t at = run.at; at < run.at + run.count; ++at) {
            const int64_t row = at / run.columns.size();
            const int64_t column = run.columns.begin + at % run.columns.size();
            ++counts[static_cast<size_t>(row * columns + column)];
          }
        }
      }
    }
  }
  return holders;
}

int CopiesOf(const ModelShape& shape, int degree, const std::string& name) {
  for (const Unit& unit : BuildInventory(shape, {degree, 0}).units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.name == name) return parameter.copies;
    }
  }
  return 0;
}

// F2, F5: nothing is lost and nothing is held by more members than say so, whatever the vocabulary
// and however few heads of keys and values.
TEST(TensorPart, GivesEveryElementToAsManyMembersAsHoldCopies) {
  const ModelShape shapes[] = {
      Shape(Architecture::kGpt2, 8, 8, 37),  Shape(Architecture::kGpt2, 8, 8, 5),
      Shape(Architecture::kLlama, 8, 8, 37), Shape(Architecture::kLlama, 8, 4, 3),
      Shape(Architecture::kLlama, 8, 2, 64), Shape(Architecture::kLlama, 8, 1, 65)};
  for (const ModelShape& shape : shapes) {
    for (const int degree : {1, 2, 4, 8}) {
      for (const auto& [name, holders] : CountHolders(shape, degree)) {
        EXPECT_THAT(holders, Each(CopiesOf(shape, degree, name))) << name << " over " << degree;
      }
    }
  }
}

TEST(TensorPart, SplitsQueriesKeysAndValuesByHeads) {
  const Inventory inventory = BuildInventory(Shape(Architecture::kGpt2, 4, 4, 8), {2, 1});
  const Parameter& qkv = inventory.units[1].parameters[2];
  ASSERT_EQ(qkv.name, "h.0.attn.c_attn.weight");
  EXPECT_THAT(qkv.shape, ElementsAre(36, 24));
  EXPECT_THAT(qkv.slice.rows,
              ElementsAre(ElementRange{12, 24}, ElementRange{36, 48}, ElementRange{60, 72}));
}

TEST(TensorPart, SharesAHeadOfKeysAndValuesAmongAdjacentMembers) {
  const ModelShape shape = Shape(Architecture::kLlama, 8, 2, 8);
  std::vector<int64_t> first;
  for (int index = 0; index < 8; ++index) first.push_back(PartOf(shape, {8, index}).first_kv_head);
  EXPECT_THAT(first, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(PartOf(shape, {8, 3}).kv_copies, 4);
  EXPECT_EQ(PartOf(shape, {8, 3}).kv_heads, 1);
}

// Of 5 entries over 4 members: 2, 2, 1 and none, each with room for 2.
TEST(TensorPart, PadsAVocabularyThatDoesNotDivide) {
  const ModelShape shape = Shape(Architecture::kGpt2, 4, 4, 5);
  std::vector<int64_t> entries;
  for (int index = 0; index < 4; ++index) {
    const ModelPart part = PartOf(shape, {4, index});
    EXPECT_EQ(part.vocab, 2);
    entries.push_back(part.vocabulary.size());
  }
  EXPECT_THAT(entries, ElementsAre(2, 2, 1, 0));
}

// Section 5: what sees a part of the sequence has a part of the gradient.
TEST(TensorPart, SumsGradientsOfWhatSeesAPartOfTheSequence) {
  const ModelShape shape = Shape(Architecture::kLlama, 8, 2, 8);
  const auto partial = [&](bool sequence) {
    const Inventory inventory = BuildInventory(shape, {4, 0, sequence});
    std::vector<std::string> names;
    for (const Parameter& parameter : inventory.units[1].parameters) {
      if (parameter.partial_gradient) names.push_back(parameter.name);
    }
    return names;
  };
  EXPECT_THAT(partial(false), ElementsAre("model.layers.0.self_attn.k_proj.weight",
                                          "model.layers.0.self_attn.v_proj.weight"));
  EXPECT_THAT(partial(true), ElementsAre("model.layers.0.input_layernorm.weight",
                                         "model.layers.0.self_attn.k_proj.weight",
                                         "model.layers.0.self_attn.v_proj.weight",
                                         "model.layers.0.post_attention_layernorm.weight"));
}

}  // namespace
}  // namespace sherd
