#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/activations.h"
#include "plan/job_spec.h"
#include "plan/model_shape.h"
#include "plan/parameters.h"
#include "plan/strategy.h"
#include "tests/plan/valid_spec.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ValidateJobSpec, ReportsEverythingThatIsWrong) {
  v1::JobSpec spec = ValidSpec();
  spec.clear_name();
  spec.mutable_model()->set_heads(5);
  spec.mutable_train()->set_seq_len(-1);
  spec.mutable_parallel()->set_tensor(-3);
  EXPECT_EQ(Violations(spec).size(), 4u);
}

// No bytes come out of files of ids.
TEST(ValidateJobSpec, TakesASmallVocabularyForFilesOfIds) {
  for (const v1::DataFormat format :
       {v1::DATA_FORMAT_TOKENS_U16, v1::DATA_FORMAT_LLMC, v1::DATA_FORMAT_MEGATRON}) {
    v1::JobSpec spec = ValidSpec();
    spec.mutable_data()->set_format(format);
    spec.mutable_model()->set_vocab(64);
    EXPECT_THAT(Violations(spec), IsEmpty()) << NameOf(format);
  }
}

// It is the default checkpoint.dir, of which nobody spoke.
TEST(ValidateJobSpec, ComplainsOnceOfABadName) {
  for (const std::string& name : {std::string(6000, 'x'), std::string("a\nb")}) {
    v1::JobSpec spec = ValidSpec();
    spec.set_name(name);
    EXPECT_EQ(Violations(spec).size(), 1u);
    spec.mutable_checkpoint()->set_dir(std::string(6000, 'd'));
    EXPECT_EQ(Violations(spec).size(), 2u);
  }
}

// A world is a multiple of the shard group, so bounds between two multiples leave none.
TEST(ValidateJobSpec, RefusesAShardGroupThatFitsNoWorld) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_HYBRID);
  EXPECT_THAT(Violations(spec), ElementsAre(HasSubstr("parallel.shard_group: is missing")));
  spec.mutable_parallel()->set_shard_group(4);
  EXPECT_THAT(Violations(spec), IsEmpty());
  spec.mutable_elastic()->set_min_workers(5);
  spec.mutable_elastic()->set_max_workers(7);
  EXPECT_THAT(Violations(spec), ElementsAre(HasSubstr("the nearest valid value is 8")));
  spec.mutable_elastic()->set_max_workers(8);
  EXPECT_THAT(Violations(spec), IsEmpty());
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_ZERO3);
  EXPECT_THAT(Violations(spec), ElementsAre(HasSubstr("is for parallel.strategy: hybrid")));
}

// Every strategy that has no row is refused with a list of those that have one.
TEST(ValidateJobSpec, TakesTheStrategiesOfTheTable) {
  std::vector<absl::string_view> supported;
  for (const v1::Strategy strategy : SupportedStrategies()) supported.push_back(NameOf(strategy));
  for (const absl::string_view name : StrategyNames()) {
    v1::JobSpec spec = ValidSpec();
    spec.mutable_parallel()->set_strategy(StrategyFromName(name));
    spec.mutable_parallel()->set_shard_group(name == "hybrid" ? 2 : 0);
    const bool has_row = FindStrategy(NormalizeJobSpec(spec).parallel()) != nullptr;
    // That one is chosen when the job starts.
    if (has_row || name == "auto") {
      EXPECT_THAT(Violations(spec), IsEmpty()) << name;
    } else {
      EXPECT_THAT(Violations(spec),
                  ElementsAre(absl::StrCat("parallel.strategy: '", name,
                                           "' is not supported by this version; those that are: ",
                                           absl::StrJoin(supported, ", "))));
    }
  }
}

// Near the largest specification that passes, byte counts stay within int64.
TEST(ValidateJobSpec, BoundsEveryByteCount) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_model()->set_layers(1000);
  spec.mutable_model()->set_hidden(16384);
  spec.mutable_model()->set_heads(4096);
  spec.mutable_model()->set_vocab(1 << 24);
  spec.mutable_model()->set_context(1 << 20);
  spec.mutable_train()->set_global_batch(1 << 20);
  spec.mutable_train()->set_micro_batch(16);
  ASSERT_THAT(Violations(spec), IsEmpty());
  spec = NormalizeJobSpec(spec);
  const ModelShape shape = ShapeOf(spec.model());
  constexpr int64_t kLimit = int64_t{1} << 62;
  const double parameters = static_cast<double>(BuildInventory(shape).elements);
  EXPECT_GT(parameters, 3e12);
  // Wire bytes of one rank and step: three passes of 4 bytes over at most 2^16 rounds.
  EXPECT_LT(parameters * 4 * 3 * (1 << 16), static_cast<double>(kLimit));
  const int64_t activations =
      PredictActivationBytes(shape, PartOf(shape, {}), spec.train().micro_batch(),
                             spec.train().seq_len(), KeptActivations::kEverything);
  EXPECT_GT(activations, int64_t{1} << 50);
  EXPECT_LT(activations, kLimit);
}

}  // namespace
}  // namespace sherd
