// A job that has come to its end, and no room for what it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "tests/worker/train/checkpoint_jobs.h"
#include "tests/worker/train/outcome.h"
#include "worker/checkpoint/save.h"
#include "worker/comm/deadline.h"
#include "worker/train/rank_job.h"

namespace sherd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FullDisk : public CheckpointJobs {
 protected:
  // The second rank's part of the weights.
  static constexpr char kPart[] = "j-1.epoch-1.partial/shard-00002";
  const absl::Status full_ = absl::ResourceExhaustedError("/disk/part: no space left on it");
};

TEST(RetryTimes, AreTenMinutesInAll) {
  const RetryTimes times;
  std::vector<double> seconds;
  absl::Duration sum;
  for (int retry = 1; retry <= times.retries; ++retry) {
    if (retry <= 8) seconds.push_back(absl::ToDoubleSeconds(DelayBefore(times, retry)));
    sum += DelayBefore(times, retry);
  }
  EXPECT_THAT(seconds, ElementsAre(1, 2, 4, 8, 16, 32, 32, 32));
  EXPECT_EQ(absl::ToInt64Minutes(sum), 10);
}

// F45: the job is at its end, and the disk is full for a while.
TEST_F(FullDisk, TheWeightsAreWrittenWhenThereIsRoomAgain) {
  FaultyFileSystem files(kPart, full_, /*times=*/5);
  const std::vector<RankRecord> records = Run(Job("zero3", 3, 3), 2, {.files = &files});
  EXPECT_FALSE(ReadWeights(FinalDirectory(root_)).empty());
  EXPECT_EQ(records[0].result.step, 3);
  ASSERT_THAT(records[0].warnings, SizeIs(1));
  EXPECT_EQ(records[0].warnings[0].kind(), "disk");
  EXPECT_THAT(records[0].warnings[0].text(),
              AllOf(HasSubstr("the weights of step 3 cannot be written to " + root_),
                    HasSubstr("no space left on it"), HasSubstr(" bytes there and "),
                    HasSubstr(" are free")));
  EXPECT_THAT(records[0].log, Contains(HasSubstr("the weights still cannot be written")));
  EXPECT_THAT(records[1].warnings, IsEmpty());
}

TEST_F(FullDisk, ThatStaysFullEndsTheJobWithThePathAndWhatIsMissing) {
  FaultyFileSystem files(kPart, full_);
  LocalWorld job(Job("zero3", 3, 3), 2, {.files = &files});
  const std::vector<RankRecord> records = job.Run();
  int final_ends = 0;
  for (const RankRecord& record : records) {
    EXPECT_EQ(record.result.status.code(), absl::StatusCode::kFailedPrecondition)
        << record.result.status;
    EXPECT_THAT(std::string(record.result.status.message()),
                AllOf(HasSubstr(root_), HasSubstr("no space left on it"), HasSubstr("they need "),
                      HasSubstr(" are free"), HasSubstr("checkpoint.resume: latest")));
    EXPECT_EQ(record.result.step, 3);
    final_ends += record.result.final ? 1 : 0;
  }
  // Of the rank that found no room.
  EXPECT_EQ(final_ends, 1);
  // Its holders keep what they hold, and the checkpoint stays.
  EXPECT_THAT(Steps(), ElementsAre(3));
  EXPECT_GE(job.workers()[1]->holdings.Find({"j-1", 1, 2, 0})->FindStep(3), 0);

  // What follows trains nothing again.
  const std::vector<RankRecord> resumed = Run(Job("zero3", 3, 3, "latest"), 2);
  EXPECT_EQ(resumed[0].ready_step, 3);
  EXPECT_THAT(resumed[0].steps, IsEmpty());
  EXPECT_FALSE(ReadWeights(FinalDirectory(root_)).empty());
}

TEST_F(FullDisk, WhoWaitsForRoomMovesAndHearsAnAbort) {
  FaultyFileSystem files(kPart, full_);
  LocalWorld job(Job("zero3", 2, 0), 2,
                 {.files = &files, .full_disk = {absl::Hours(1), absl::Hours(1), 3}});
  job.Start();
  const Deadline deadline(absl::Seconds(20));
  const auto waits = [&](int rank) {
    return absl::StartsWith(job.trainer(rank).Position().operation, "waiting for room");
  };
  while (!(waits(0) && waits(1)) && !deadline.passed()) std::this_thread::yield();
  const std::string place = job.trainer(1).Position().operation;
  EXPECT_THAT(place, HasSubstr("waiting for room to write the weights ("));
  while (job.trainer(1).Position().operation == place && !deadline.passed()) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(deadline.passed());
  const Deadline soon(absl::Milliseconds(500));
  for (int rank = 0; rank < 2; ++rank) job.trainer(rank).Abort("a test");
  for (const RankRecord& record : job.Join()) {
    EXPECT_TRUE(absl::IsAborted(record.result.status)) << record.result.status;
    EXPECT_EQ(record.result.step, 2);
  }
  EXPECT_FALSE(soon.passed());
}

// F29: however much there is to write.
TEST_F(FullDisk, AnAbortEndsTheWritingOfWeights) {
  FaultyFileSystem files(kPart, absl::OkStatus());
  LocalWorld job(Job("zero3", 2, 0), 2, {.files = &files});
  job.Start();
  files.AwaitSomebody();
  for (int rank = 0; rank < 2; ++rank) job.trainer(rank).Abort("a test");
  files.Release();
  for (const RankRecord& record : job.Join()) {
    EXPECT_TRUE(absl::IsAborted(record.result.status)) << record.result.status;
  }
  EXPECT_FALSE(std::filesystem::exists(FinalDirectory(root_)));
}

}  // namespace
}  // namespace sherd::testing
