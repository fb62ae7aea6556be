// What `sherd plan` is asked, and what it refuses.

#include <string>
#include <vector>

#include "client/plan_request.h"
#include "client/quantities.h"
#include "client/run_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/plan_flags_fixture.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Error(const PlanFlags& flags) {
  const absl::StatusOr<PlanRequest> request = ReadPlanFlags(flags);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(request.status().message());
}

// The world that plan shows and run trains is the one that a coordinator would form.
TEST(WorldOf, SaysWhoStaysIdle) {
  v1::JobSpec spec = testing::MakeJob("hybrid 2", v1::DATA_TYPE_BF16, 4);
  std::vector<std::string> idle;
  EXPECT_EQ(WorldOf(spec, 4, idle), 4);
  EXPECT_TRUE(idle.empty());
  EXPECT_EQ(WorldOf(spec, 3, idle), 2);
  spec.mutable_elastic()->set_max_workers(5);
  EXPECT_EQ(WorldOf(spec, 9, idle), 4);
  EXPECT_THAT(idle, ::testing::ElementsAre("parallel.shard_group is 2: of 3 workers 1 stays idle",
                                           "elastic.max_workers is 5: of 9 workers 4 stay idle",
                                           "parallel.shard_group is 2: of 5 workers 1 stays idle"));
  idle.clear();
  spec.mutable_parallel()->set_tensor(2);
  EXPECT_EQ(WorldOf(spec, 5, idle), 4);
  spec.mutable_parallel()->set_shard_group(0);
  EXPECT_EQ(WorldOf(spec, 3, idle), 2);
  EXPECT_THAT(
      idle, ::testing::ElementsAre("parallel.tensor × shard_group is 4: of 5 workers 1 stays idle",
                                   "parallel.tensor is 2: of 3 workers 1 stays idle"));
}

TEST(PlanFlags, ARankIsOfOneJobsWorld) {
  PlanFlags flags = OfAFile();
  EXPECT_FALSE(Read(flags).rank.has_value());
  flags.rank = "3";
  EXPECT_EQ(Read(flags).rank, 3);
  flags.rank = "4";
  EXPECT_THAT(Error(flags), HasSubstr("--rank"));
  flags.rank = "0";
  flags.compare = true;
  EXPECT_THAT(Error(flags), HasSubstr("leave out --compare"));
  flags = SevenBillion();
  flags.rank = "0";
  EXPECT_THAT(Error(flags), HasSubstr("needs a job file"));
}

TEST(PlanFlags, ThreadsAreOfAJobsWorkers) {
  PlanFlags flags = OfAFile();
  EXPECT_EQ(ReadPlanFlags(flags)->threads, 1);
  flags.threads = "2";
  EXPECT_EQ(ReadPlanFlags(flags)->threads, 2);
  flags.threads = "0";
  EXPECT_THAT(Error(flags), ::testing::HasSubstr("--threads"));
  flags = SevenBillion();
  flags.threads = "2";
  EXPECT_THAT(Error(flags), ::testing::HasSubstr("job file"));
}

TEST(Quantities, SizesHaveAUnitAndAreStrict) {
  EXPECT_EQ(*ParseByteSize("--m", "80GiB"), int64_t{80} << 30);
  EXPECT_EQ(*ParseByteSize("--m", "1.5KiB"), 1536);
  EXPECT_EQ(*ParseByteSize("--m", "50GB"), 50'000'000'000);
  EXPECT_EQ(*ParseByteSize("--m", "16MB"), 16'000'000);
  EXPECT_EQ(*ParseByteSize("--m", "1048576TiB"), int64_t{1} << 60);
  for (const char* text : {"", "80", "GiB", "80gib", "80 GiB", " 80GiB", "80GiB ", "-1GiB", "+1GiB",
                           "1e3GiB", "0x1GiB", "1.2.3GiB", "nanGiB", "infGiB", "80G", ".GiB"}) {
    EXPECT_THAT(std::string(ParseByteSize("--m", text).status().message()),
                AllOf(StartsWith("--m"), HasSubstr("as in 80GiB")))
        << text;
  }
  for (const char* text : {"0GiB", "0.0000000001KiB", "1048577TiB"}) {
    EXPECT_THAT(std::string(ParseByteSize("--m", text).status().message()),
                HasSubstr("at least one byte"))
        << text;
  }
}

TEST(Quantities, CountsAreWholeAndInRange) {
  EXPECT_EQ(*ParseCount("--n", "7e9", 1, 10'000'000'000), 7'000'000'000);
  EXPECT_EQ(*ParseCount("--n", "7000000001", 1, 10'000'000'000), 7'000'000'001);
  EXPECT_EQ(*ParseCount("--n", "1.5e1", 1, 20), 15);
  for (const char* text :
       {"", "seven", "7B", "1.5", "nan", "inf", "1e999", "0x10", " 7", "7 ", "--7"}) {
    EXPECT_EQ(ParseCount("--n", text, 1, 20).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_EQ(ParseCount("--n", "0", 1, 20).status().message(),
            "--n 0 is out of range; the nearest valid value is 1 (1 to 20)");
  EXPECT_EQ(ParseCount("--n", "1e300", 1, 20).status().message(),
            "--n 1e300 is out of range; the nearest valid value is 20 (1 to 20)");
}

TEST(Quantities, RealsAreFinite) {
  EXPECT_EQ(*ParseReal("--f", "1e12", 1, 1e24), 1e12);
  for (const char* text : {"nan", "-inf", "1e999", "fast", "0", "-1", "1e25"}) {
    EXPECT_FALSE(ParseReal("--f", text, 1, 1e24).ok()) << text;
  }
}

TEST(PlanFlags, SayWhatIsMissing) {
  EXPECT_THAT(Error({}), HasSubstr("name a job file, or a number of parameters"));
  PlanFlags flags = SevenBillion();
  flags.strategy.reset();
  EXPECT_THAT(Error(flags), HasSubstr("--strategy is missing"));
  flags = SevenBillion();
  flags.workers.reset();
  EXPECT_THAT(Error(flags), HasSubstr("--workers is missing"));
  flags = SevenBillion();
  flags.strategy = "hybrid";
  EXPECT_THAT(Error(flags), HasSubstr("needs --shard-group"));
}

TEST(PlanFlags, RefuseWhatContradictsItself) {
  PlanFlags flags = SevenBillion();
  flags.job_file = "job.yaml";
  EXPECT_THAT(Error(flags), HasSubstr("contradict"));
  flags = SevenBillion();
  flags.compare = true;
  EXPECT_THAT(Error(flags), HasSubstr("leave out --strategy"));
  flags = SevenBillion();
  flags.overrides = {"train.steps=3"};
  EXPECT_THAT(Error(flags), HasSubstr("--set changes a job file"));
  flags = SevenBillion();
  flags.explain = true;
  EXPECT_THAT(Error(flags), HasSubstr("--explain needs a job file"));
  flags = OfAFile();
  flags.explain = flags.compare = true;
  EXPECT_THAT(Error(flags), HasSubstr("leave out --compare"));
  flags = OfAFile();
  flags.rounds = "3";
  EXPECT_THAT(Error(flags), StartsWith("--rounds goes with --params"));
  flags = SevenBillion();
  flags.flops = "1e12";
  EXPECT_THAT(Error(flags), StartsWith("--flops needs a job file"));
  flags = SevenBillion();
  flags.zero1_gradients = "all_reduce";
  EXPECT_THAT(Error(flags), HasSubstr("goes with --strategy zero1"));
  flags = SevenBillion();
  flags.shard_group = "2";
  EXPECT_THAT(Error(flags), HasSubstr("goes with --strategy hybrid"));
  flags = SevenBillion();
  flags.workers_per_host = "2";
  EXPECT_THAT(Error(flags), HasSubstr("goes with --host-memory"));
}

TEST(PlanFlags, AComparisonHasOneShardGroup) {
  PlanFlags flags = SevenBillion();
  flags.strategy.reset();
  flags.compare = true;
  EXPECT_EQ(Read(flags).theory.back().shard_group, 2);
  EXPECT_EQ(Read(flags).theory.size(), 7u);
  // What a prime number of workers would be cut into shards nothing.
  flags.workers = "5";
  EXPECT_EQ(Read(flags).theory.size(), 6u);
  flags.workers = "12";
  EXPECT_EQ(Read(flags).theory.back().shard_group, 6);
  flags.shard_group = "3";
  EXPECT_EQ(Read(flags).theory.back().shard_group, 3);
  flags.shard_group = "5";
  EXPECT_THAT(Error(flags), HasSubstr("--shard-group 5 does not divide 12 workers"));
  flags.shard_group.reset();
  flags.zero1_gradients = "all_reduce";
  EXPECT_THAT(Error(flags), HasSubstr("leave out --zero1-gradients"));
}

TEST(PlanFlags, NameTheNearestValue) {
  PlanFlags flags = SevenBillion();
  flags.strategy = "zero33";
  EXPECT_EQ(Error(flags), "--strategy: unknown value 'zero33'; did you mean 'zero3'?");
  flags = SevenBillion();
  flags.strategy = "pipeline";
  EXPECT_EQ(
      Error(flags),
      "--strategy: unknown value 'pipeline'; it is one of ddp, zero1, zero2, zero3, hybrid, auto");
  flags = SevenBillion();
  flags.compute = "fp3";
  EXPECT_THAT(Error(flags), HasSubstr("'fp3'; did you mean 'fp32'?"));
  flags = OfAFile();
  flags.profile = "h10";
  EXPECT_THAT(Error(flags), HasSubstr("did you mean 'h100'"));
  flags = SevenBillion();
  flags.strategy = "hybrid";
  flags.shard_group = "3";
  EXPECT_THAT(Error(flags), HasSubstr("the nearest below that does is 2"));
}

TEST(PlanFlags, ChangeTheCostModelOfAProfile) {
  PlanFlags flags = OfAFile();
  EXPECT_EQ(Read(flags).cost_source, "cpu");
  EXPECT_TRUE(Read(flags).cost.shares_cores);
  flags.profile = "h100";
  flags.flops = "3e14";
  flags.bandwidth = "25GB";
  flags.overlap = "false";
  const PlanRequest request = Read(flags);
  EXPECT_EQ(request.cost.flops, 3e14);
  EXPECT_EQ(request.cost.bandwidth, 25e9);
  EXPECT_TRUE(request.cost.shares_cores);
  EXPECT_EQ(request.cost_source, "h100 with --flops 3e14, --bandwidth 25GB, --overlap false");
}

}  // namespace
}  // namespace sherd
