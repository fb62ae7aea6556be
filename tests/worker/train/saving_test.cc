// Checkpoints that are saved beside training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/time/clock.h"
#include "tests/worker/train/checkpoint_jobs.h"
#include "tests/worker/train/outcome.h"
#include "worker/checkpoint/save.h"

namespace sherd::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Saving : public CheckpointJobs {
 protected:
  // Of the job's directory, but for its checkpoints.
  std::vector<std::string> HiddenFiles() const {
    std::vector<std::string> hidden;
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      const std::string name = entry.path().filename();
      if (name.front() == '.') hidden.push_back(name);
    }
    return hidden;
  }
};

// F43: whatever the layout, each element is written once, and what is there is whole.
TEST_F(Saving, EveryStrategyLeavesSoundCheckpointsAndItsLedgerSaysWhatTheyNeed) {
  struct Case {
    const char* strategy;
    int64_t tensor;
  };
  for (const Case& each :
       {Case{"ddp", 1}, {"zero1", 1}, {"zero2", 1}, {"zero3", 1}, {"hybrid 2", 1}, {"zero3", 2}}) {
    SCOPED_TRACE(absl::StrCat(each.strategy, " × tensor ", each.tensor));
    for (const int64_t replicas : {0, 1}) {
      std::filesystem::remove_all(root_);
      v1::JobSpec spec = Job(each.strategy, 10, 3, "none", each.tensor);
      spec.mutable_elastic()->set_replicas(replicas);
      const std::vector<RankRecord> records = Run(spec, 4);
      ExpectExactLedgers(records, each.strategy);
      std::vector<int64_t> told;
      for (const v1::CheckpointReport& report : records[0].checkpoints) {
        EXPECT_EQ(report.error(), "");
        EXPECT_EQ(report.epoch(), 1);
        EXPECT_GT(report.bytes(), 0);
        EXPECT_GT(report.seconds(), 0);
        EXPECT_TRUE(std::filesystem::exists(report.path() + "/manifest.json"));
        told.insert(told.begin(), report.step());
      }
      // Later ones may have been left out when a save took long.
      EXPECT_THAT(told, Contains(3));
      EXPECT_EQ(Steps(), told);
      EXPECT_THAT(HiddenFiles(), IsEmpty());
      for (size_t rank = 1; rank < records.size(); ++rank) {
        EXPECT_THAT(records[rank].checkpoints, IsEmpty());
      }
    }
  }
}

TEST_F(Saving, KeepsTheNewestOfAHistory) {
  for (const int64_t steps : {2, 4, 6}) {
    v1::JobSpec spec = Job("zero2", steps, steps, "latest");
    spec.mutable_checkpoint()->set_keep(2);
    Run(spec, 2);
  }
  EXPECT_THAT(Steps(), ElementsAre(6, 4));
}

// Training does not wait for a save, nor is a second one begun beside it.
TEST_F(Saving, LeavesOutWhatIsDueWhileASaveIsUnderWay) {
  FaultyFileSystem files("step-00000003", absl::OkStatus());
  LocalWorld job(Job("zero3", 12, 3), 2, {.files = &files});
  job.Start();
  job.WaitForStep(0, 7);
  files.Release();
  const std::vector<RankRecord> records = job.Join();
  for (const RankRecord& record : records) EXPECT_TRUE(record.result.status.ok());
  EXPECT_THAT(records[0].log, Contains(HasSubstr("step 6 is not saved as a checkpoint")));
  const std::vector<int64_t> steps = Steps();
  EXPECT_THAT(steps, Contains(3));
  EXPECT_THAT(steps, ::testing::Not(Contains(6)));
  // The last is never left out.
  EXPECT_THAT(steps, Contains(12));
}

// F45: also when only one rank's part is missing.
TEST_F(Saving, AFullDiskIsToldAndEndsNoTraining) {
  for (const char* const part : {"shard-00001-of-00002", "shard-00002-of-00002"}) {
    FaultyFileSystem files(absl::StrCat("step-00000002-epoch-1.partial/", part),
                           absl::ResourceExhaustedError("no space left on a test's device"));
    const std::vector<RankRecord> records = Run(Job("zero3", 5, 2), 2, {.files = &files});
    ASSERT_FALSE(records[0].checkpoints.empty());
    const v1::CheckpointReport& report = records[0].checkpoints.front();
    EXPECT_EQ(report.step(), 2);
    EXPECT_THAT(report.error(), HasSubstr("no space"));
    EXPECT_THAT(Steps(), ::testing::Not(Contains(2)));
    EXPECT_FALSE(ReadWeights(FinalDirectory(root_)).empty());
    EXPECT_THAT(HiddenFiles(), IsEmpty());
  }
}

// F44: what an abort leaves is no checkpoint and in nobody's way.
// F34: its disk does not answer. The others say whom they wait for, and it that it does not wait.
TEST_F(Saving, ARankThatHangsWhileItWritesTheWeightsCanBeTold) {
  FaultyFileSystem files("shard-00002", absl::OkStatus());
  LocalEpoch epoch;
  epoch.files = &files;
  LocalWorld job(Job("zero3", 2, 0), 3, std::move(epoch));
  job.Start();
  files.AwaitSomebody();
  const std::vector<int> second = {1};
  for (const int rank : {0, 2}) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (job.trainer(rank).Position().missing != second && absl::Now() < deadline) {
      std::this_thread::yield();
    }
    const TrainPosition position = job.trainer(rank).Position();
    EXPECT_EQ(position.missing, second);
    EXPECT_TRUE(position.waiting);
    EXPECT_EQ(position.step, 2);
    EXPECT_THAT(position.operation, HasSubstr("writing the weights (file operation "));
  }
  const TrainPosition stuck = job.trainer(1).Position();
  EXPECT_FALSE(stuck.waiting);
  EXPECT_THAT(stuck.missing, IsEmpty());
  EXPECT_EQ(stuck.operation, job.trainer(1).Position().operation);
  files.Release();
  for (const RankRecord& record : job.Join()) {
    EXPECT_TRUE(record.result.status.ok()) << record.result.status;
  }
}

TEST_F(Saving, AnAbortGivesUpWhatIsUnderWay) {
  FaultyFileSystem files("step-00000002", absl::OkStatus());
  const v1::JobSpec spec = Job("zero3", 1000000, 2, "latest");
  {
    LocalWorld job(spec, 2, {.files = &files});
    job.Start();
    files.AwaitSomebody();
    for (int rank = 0; rank < 2; ++rank) job.trainer(rank).Abort("a test");
    files.Release();
    for (const RankRecord& record : job.Join()) {
      EXPECT_TRUE(absl::IsAborted(record.result.status)) << record.result.status;
      EXPECT_THAT(record.checkpoints, IsEmpty());
    }
  }
  EXPECT_THAT(Steps(), IsEmpty());
  Run(Job("zero3", 4, 2, "latest"), 2);
  EXPECT_THAT(Steps(), Contains(2));
  EXPECT_THAT(HiddenFiles(), IsEmpty());
}

}  // namespace
}  // namespace sherd::testing
