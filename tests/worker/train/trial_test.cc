// What ranks measure, and that nothing is left of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "plan/ledger.h"
#include "plan/peer_addresses.h"
#include "plan/probe_cost.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "worker/train/probe.h"
#include "worker/train/process_memory.h"

namespace sherd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Trial Probe(int world) {
  v1::Trial trial;
  trial.set_number(1);
  for (const int64_t size : ProbeGroupSizes(world)) trial.add_group_sizes(size);
  return trial;
}

v1::Trial Steps(int64_t steps) {
  v1::Trial trial;
  trial.set_number(2);
  trial.set_steps(steps);
  return trial;
}

class TrialTest : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy, int64_t steps = 4) {
    v1::JobSpec spec = TinyJob(text_, strategy, v1::DATA_TYPE_BF16, 4, steps);
    spec.mutable_elastic()->set_replicas(1);
    spec.mutable_checkpoint()->set_dir(out_);
    spec.mutable_checkpoint()->set_every(1);
    *spec.mutable_data()->mutable_eval() = spec.data().train();
    return spec;
  }

  std::vector<RankRecord> Run(const v1::JobSpec& spec, int world, const v1::Trial& trial) {
    LocalEpoch epoch;
    epoch.trial = trial;
    epoch.workers = workers_ = MakeWorkers(world);
    LocalWorld ranks(spec, world, std::move(epoch));
    std::vector<RankRecord> records = ranks.Run();
    series_ = ranks.registry().Collect().size();
    return records;
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", MakeText(4000, 3));
  const std::string out_ = scratch_.path() + "/out";
  LocalWorkers workers_;
  size_t series_ = 0;
};

TEST_F(TrialTest, StepsAreTimedAsTheyAreTrained) {
  for (const absl::string_view strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    for (const int world : {1, 3}) {
      const v1::JobSpec spec = Job(strategy);
      // More than the job has.
      const std::vector<RankRecord> records = Run(spec, world, Steps(6));
      for (int rank = 0; rank < world; ++rank) {
        const TrainResult& result = records[static_cast<size_t>(rank)].result;
        ASSERT_TRUE(result.status.ok()) << result.status;
        EXPECT_TRUE(records[static_cast<size_t>(rank)].ready);
        ASSERT_TRUE(result.trial);
        EXPECT_EQ(result.trial->number(), 2);
        EXPECT_GT(result.trial->step_seconds(), 0);
        EXPECT_LT(result.trial->step_seconds(), 10);
        const RankPlan plan = BuildRankPlan(spec, rank, world);
        EXPECT_EQ(result.trial->peak_bytes(),
                  PredictLedger(plan, spec).memory().at("peak").predicted())
            << strategy << " rank " << rank << " of " << world;
      }
    }
  }
}

TEST_F(TrialTest, NothingIsToldOrKept) {
  for (const RankRecord& record : Run(Job("zero2"), 2, Steps(5))) {
    EXPECT_EQ(record.result.step, 0);
    EXPECT_EQ(record.result.weights_path, "");
    EXPECT_FALSE(record.result.paused);
    EXPECT_THAT(record.steps, IsEmpty());
    EXPECT_THAT(record.evals, IsEmpty());
    EXPECT_THAT(record.ledgers, IsEmpty());
    EXPECT_THAT(record.checkpoints, IsEmpty());
    EXPECT_THAT(record.log, IsEmpty());
  }
  for (const auto& worker : workers_) EXPECT_TRUE(worker->holdings.empty());
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_EQ(series_, 0u);
}

TEST_F(TrialTest, TheJobTrainsAfterwardsAsIfNothingHadBeen) {
  const std::vector<RankRecord> before = LocalWorld(Job("zero2"), 2).Run();
  Run(Job("zero3"), 2, Steps(3));
  LocalEpoch epoch{.epoch = 2, .workers = workers_};
  const std::vector<RankRecord> after = LocalWorld(Job("zero2"), 2, std::move(epoch)).Run();
  ASSERT_TRUE(after[0].result.status.ok()) << after[0].result.status;
  ASSERT_EQ(after[0].steps.size(), before[0].steps.size());
  for (size_t step = 0; step < after[0].steps.size(); ++step) {
    EXPECT_EQ(after[0].steps[step].loss(), before[0].steps[step].loss());
  }
}

TEST_F(TrialTest, AProbeTimesEveryGroupThatIsAskedFor) {
  for (const int world : {1, 2, 3, 4}) {
    const std::vector<RankRecord> records = Run(Job("ddp"), world, Probe(world));
    std::set<std::tuple<std::string, int64_t, int64_t, int64_t>> all;
    for (const RankRecord& record : records) {
      ASSERT_TRUE(record.result.status.ok()) << record.result.status;
      EXPECT_TRUE(record.ready);
      const v1::TrialReport& report = *record.result.trial;
      EXPECT_GT(report.matmul_flops_per_second(), 1e6);
      EXPECT_GT(report.copy_bytes_per_second(), 1e6);
      for (const v1::CollectiveFigure& figure : report.collectives()) {
        EXPECT_GT(figure.seconds(), 0);
        all.insert({figure.op(), figure.group_size(), figure.stride(), figure.bytes()});
      }
    }
    // Two all-gathers, a reduce-scatter and an all-reduce a group.
    const size_t groups[] = {0, 0, 1, 1, 3};
    EXPECT_EQ(all.size(), 4 * groups[world]) << world;
    const v1::TrialReport slowest = SlowestOf(std::vector{*records[0].result.trial});
    EXPECT_EQ(slowest.collectives_size(), records[0].result.trial->collectives_size());
  }
}

TEST_F(TrialTest, AProbeOfGroupsThatCannotBeIsRefused) {
  v1::Trial trial = Probe(3);
  trial.add_group_sizes(2);
  // The first rank that sees it ends the others' probe.
  int refused = 0;
  for (const RankRecord& record : Run(Job("ddp"), 3, trial)) {
    EXPECT_FALSE(record.result.status.ok());
    if (record.result.status.code() != absl::StatusCode::kInvalidArgument) continue;
    EXPECT_THAT(std::string(record.result.status.message()), HasSubstr("no groups of 2 ranks"));
    ++refused;
  }
  EXPECT_GT(refused, 0);
}

TEST_F(TrialTest, AnAssignmentThatCannotBePlannedIsRefusedForGood) {
  for (const RankRecord& record : Run(Job("zero3"), 2, Steps(-1))) {
    EXPECT_EQ(record.result.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(record.result.status.message()), HasSubstr("tries -1 steps"));
    EXPECT_TRUE(record.result.final);
    EXPECT_FALSE(record.result.trial);
  }
}

// F21: of a group that does not come about the rank of the world is named that is why.
TEST_F(TrialTest, AProbeBlamesWhoseProcessIsGone) {
  LocalWorkers workers = MakeWorkers(4);
  v1::Assignment assignment;
  assignment.set_job_id("job-1");
  assignment.set_world(4);
  assignment.set_rank(2);
  *assignment.mutable_spec() = Job("ddp");
  *assignment.mutable_trial() = Probe(4);
  std::string previous;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string address = workers[static_cast<size_t>(rank)]->listener->address();
    AppendPeer(rank, address, previous, *assignment.mutable_peers());
    previous = address;
  }
  workers[3].reset();
  MachineProbe probe(assignment, 1, *workers[2]->listener);
  FormationAbort abort;
  const absl::Status status = probe.Run(abort, [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ranks 2, 3 of the job"));
  EXPECT_EQ(probe.lost_peer(), 3);
}

// F29
TEST_F(TrialTest, AnAbortEndsIt) {
  for (const v1::Trial& trial : {Probe(2), Steps(1'000'000)}) {
    LocalEpoch epoch;
    epoch.trial = trial;
    LocalWorld ranks(Job("zero3", 1'000'000), 2, std::move(epoch));
    ranks.Start();
    ranks.trainer(1).Abort("a test");
    ranks.trainer(0).Abort("a test");
    for (const RankRecord& record : ranks.Join()) {
      EXPECT_EQ(record.result.status.code(), absl::StatusCode::kAborted) << record.result.status;
      EXPECT_FALSE(record.result.trial);
    }
  }
}

// F22: who measures is not left waiting.
TEST_F(TrialTest, ARankThatFailsEndsTheOthersTrial) {
  LocalEpoch epoch;
  epoch.trial = Steps(1'000'000);
  LocalWorld ranks(Job("zero2", 1'000'000), 3, std::move(epoch));
  ranks.Start();
  ranks.trainer(1).Abort("a test");
  for (const RankRecord& record : ranks.Join()) EXPECT_FALSE(record.result.status.ok());
}

// F18, F36
TEST_F(TrialTest, TwentyOfThemLeaveNothingBehind) {
  const auto count = [](const char* directory) {
    return std::distance(std::filesystem::directory_iterator(directory), {});
  };
  const auto measure = [&] {
    Run(Job("zero3"), 2, Probe(2));
    Run(Job("zero3"), 2, Steps(3));
    Run(Job("ddp"), 2, Steps(3));
    workers_.clear();
  };
  // Kernels are compiled in the first.
  measure();
  ReturnFreeHeap();
  const auto descriptors = count("/proc/self/fd");
  const auto threads = count("/proc/self/task");
  const absl::StatusOr<int64_t> bytes = AnonymousBytes();
  for (int turn = 0; turn < 7; ++turn) measure();
  ReturnFreeHeap();
  EXPECT_EQ(count("/proc/self/fd"), descriptors);
  EXPECT_EQ(count("/proc/self/task"), threads);
  if (bytes.ok()) {
    EXPECT_LT(*AnonymousBytes() - *bytes, 8 << 20);
  }
}

}  // namespace
}  // namespace sherd::testing
