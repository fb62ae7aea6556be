#include "plan/parallel_rules.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"
#include "plan/tensor_part.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Sizes {
  int64_t heads = 8;
  int64_t kv_heads = 8;
  int64_t ffn = 64;
};

v1::JobSpec Job(int64_t tensor, const Sizes& sizes = {}) {
  v1::JobSpec spec;
  spec.set_name("job");
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_arch(v1::ARCHITECTURE_LLAMA);
  model.set_layers(2);
  model.set_hidden(sizes.heads * 4);
  model.set_heads(sizes.heads);
  model.set_kv_heads(sizes.kv_heads);
  model.set_ffn(sizes.ffn);
  model.set_vocab(256);
  model.set_context(32);
  spec.mutable_data()->add_train("corpus.txt");
  spec.mutable_train()->set_steps(1);
  spec.mutable_train()->set_micro_batch(2);
  spec.mutable_train()->set_global_batch(8);
  spec.mutable_parallel()->set_tensor(tensor);
  return NormalizeJobSpec(spec);
}

std::vector<std::string> Broken(const v1::JobSpec& spec) {
  SpecRules rules;
  CheckParallel(spec, rules);
  std::vector<std::string> violations;
  const v1::InvalidFields invalid = std::move(rules).Take();
  for (const v1::InvalidField& field : invalid.fields()) {
    violations.push_back(absl::StrCat(field.field(), ": ", field.description()));
  }
  return violations;
}

TEST(TensorRules, NameTheNearestDegreesThatFitTheWholeModel) {
  EXPECT_THAT(Broken(Job(3)), ElementsAre("parallel.tensor: tensor 3 does not fit 8 heads; the "
                                          "nearest that do are 2 and 4"));
  EXPECT_THAT(Broken(Job(16)), ElementsAre("parallel.tensor: tensor 16 does not fit 8 heads; the "
                                           "nearest that does is 8"));
  EXPECT_THAT(Broken(Job(8, {.ffn = 12})),
              ElementsAre("parallel.tensor: tensor 8 does not fit ffn 12; the nearest that does is "
                          "4"));
  // Neither shared evenly nor whole: 4 divides 12 heads, and ffn, but not 6 heads of keys.
  EXPECT_THAT(Broken(Job(4, {.heads = 12, .kv_heads = 6, .ffn = 24})),
              ElementsAre("parallel.tensor: tensor 4 does not fit 6 kv_heads; the nearest that do "
                          "are 3 and 6"));
  EXPECT_THAT(Broken(Job(65537)), ElementsAre("parallel.tensor: 65537 is out of range; the nearest "
                                              "valid value is 65536 (1 to 65536)"));
  EXPECT_THAT(Broken(Job(4096, {.ffn = 65536})),
              ElementsAre("parallel.tensor: tensor 4096 does not fit 8 heads; the nearest that "
                          "does is 8"));
}

// What passes can be cut, also into fewer heads of keys and values than members.
TEST(TensorRules, TakeWhatAMemberCanHold) {
  for (const int64_t kv_heads : {1, 2, 4, 8}) {
    for (const int tensor : {1, 2, 4, 8}) {
      const v1::JobSpec spec = Job(tensor, {.kv_heads = kv_heads});
      EXPECT_THAT(Broken(spec), IsEmpty()) << tensor << " of " << kv_heads;
      for (int index = 0; index < tensor; ++index) {
        PartOf(ShapeOf(spec.model()), TensorPlaceOf(spec.parallel(), index));
      }
    }
  }
}

TEST(TensorRules, SequenceParallelismCutsTheTokensOfAMicroBatch) {
  const auto broken = [](int64_t tensor, int64_t micro_batch, int64_t seq_len) {
    v1::JobSpec spec = Job(tensor);
    spec.mutable_parallel()->set_sequence_parallel(true);
    spec.mutable_train()->set_micro_batch(micro_batch);
    spec.mutable_train()->set_seq_len(seq_len);
    return Broken(spec);
  };
  EXPECT_THAT(broken(4, 2, 16), IsEmpty());
  EXPECT_THAT(broken(8, 8, 1), IsEmpty());
  EXPECT_THAT(broken(1, 2, 16),
              ElementsAre("parallel.sequence_parallel: cuts what a tensor-parallel group shares, "
                          "and parallel.tensor is 1; set that to 2 or leave it out"));
  EXPECT_THAT(broken(4, 2, 15),
              ElementsAre("parallel.sequence_parallel: tensor 4 does not divide the 30 tokens of a "
                          "micro-batch, micro_batch 2 × seq_len 15; the nearest seq_lens that do "
                          "are 14 and 16"));
  EXPECT_THAT(broken(8, 1, 31),
              ElementsAre("parallel.sequence_parallel: tensor 8 does not divide the 31 tokens of a "
                          "micro-batch, micro_batch 1 × seq_len 31; the nearest seq_lens that do "
                          "are 24 and 32"));
}

TEST(WorldRules, NameTheNearestWorlds) {
  const auto broken = [](int64_t tensor, int64_t shard_group, int64_t fewest, int64_t most) {
    v1::JobSpec spec = Job(tensor);
    if (shard_group > 0) spec.mutable_parallel()->set_strategy(v1::STRATEGY_HYBRID);
    spec.mutable_parallel()->set_shard_group(shard_group);
    spec.mutable_elastic()->set_min_workers(fewest);
    spec.mutable_elastic()->set_max_workers(most);
    return Broken(spec);
  };
  EXPECT_THAT(broken(4, 0, 4, 8), IsEmpty());
  // Bounds need not be multiples as long as a world is between them.
  EXPECT_THAT(broken(4, 0, 3, 9), IsEmpty());
  EXPECT_THAT(broken(4, 0, 1, 0), IsEmpty());
  EXPECT_THAT(broken(4, 0, 6, 6), ElementsAre("elastic.max_workers: 6 workers are no multiple of 4 "
                                              "(tensor 4); the nearest are 4 and 8"));
  EXPECT_THAT(broken(4, 2, 6, 6),
              ElementsAre("elastic.max_workers: 6 workers are no multiple of 8 (tensor 4 × "
                          "shard_group 2); the nearest is 8"));
  EXPECT_THAT(broken(4, 0, 5, 7),
              ElementsAre("elastic.max_workers: 7 leaves no world: at least 5 workers, a multiple "
                          "of 4 (tensor 4); the nearest valid value is 8"));
  EXPECT_THAT(broken(2, 3, 1, 5),
              ElementsAre("elastic.max_workers: 5 leaves no world: at least 1 workers, a multiple "
                          "of 6 (tensor 2 × shard_group 3); the nearest valid value is 6"));
  EXPECT_THAT(broken(1, 3, 65536, 0),
              ElementsAre("elastic.min_workers: 65536 leaves no world: at least 65536 workers, a "
                          "multiple of 3 (shard_group 3); the nearest valid value is 65535"));
  EXPECT_THAT(broken(8, 10000, 1, 0),
              ElementsAre("parallel.shard_group: tensor 8 × shard_group 10000 is more than 65536 "
                          "workers; the nearest valid value is 8192"));
}

// Nothing overflows, and each impossible number is complained about by itself.
TEST(WorldRules, StandImpossibleNumbers) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  v1::JobSpec spec = Job(4);
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_HYBRID);
  spec.mutable_parallel()->set_shard_group(kHuge);
  spec.mutable_parallel()->set_sequence_parallel(true);
  spec.mutable_train()->set_micro_batch(kHuge);
  spec.mutable_train()->set_seq_len(kHuge);
  spec.mutable_elastic()->set_min_workers(kHuge);
  EXPECT_THAT(Broken(spec),
              ElementsAre("parallel.shard_group: 9223372036854775807 is out of range; the nearest "
                          "valid value is 65536 (1 to 65536)"));
  spec = Job(kHuge);
  spec.mutable_model()->set_heads(kHuge);
  EXPECT_EQ(Broken(spec).size(), 1u);
}

// What is left open is chosen later; what is given must be right.
TEST(AutoRules, LookAtWhatIsGivenAlone) {
  v1::JobSpec spec = Job(1);
  spec.mutable_parallel()->Clear();
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_AUTO);
  spec = NormalizeJobSpec(spec);
  EXPECT_THAT(Broken(spec), IsEmpty());
  spec.mutable_parallel()->set_sequence_parallel(true);
  EXPECT_THAT(Broken(spec), IsEmpty());
  spec.mutable_parallel()->set_tensor(3);
  EXPECT_THAT(Broken(spec), ElementsAre("parallel.tensor: tensor 3 does not fit 8 heads; the "
                                        "nearest that do are 2 and 4"));
  spec.mutable_parallel()->set_tensor(2);
  spec.mutable_parallel()->set_shard_group(2);
  EXPECT_THAT(Broken(spec), ElementsAre("parallel.shard_group: 2 is for parallel.strategy: "
                                        "hybrid; 'auto' takes 0"));
  spec.mutable_parallel()->set_shard_group(0);
  spec.mutable_parallel()->set_recompute(static_cast<v1::Recompute>(9));
  EXPECT_THAT(Broken(spec), ElementsAre("parallel.recompute: must be one of none, block"));
}

TEST(AutoRules, AMicroBatchMayBeLeftOut) {
  v1::JobSpec spec = Job(1);
  spec.mutable_parallel()->Clear();
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_AUTO);
  spec.mutable_train()->set_micro_batch(0);
  EXPECT_EQ(ValidateJobSpec(NormalizeJobSpec(spec)).ShortDebugString(), "");
  spec.mutable_train()->set_micro_batch(3);
  EXPECT_EQ(ValidateJobSpec(NormalizeJobSpec(spec)).fields_size(), 1);
}

}  // namespace
}  // namespace sherd
