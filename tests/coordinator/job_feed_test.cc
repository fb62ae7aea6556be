// What a job's readers see: its entries, its log, its series.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "tests/coordinator/job_desk_fixture.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(JobDeskTest, TellsTheEndOfEveryRank) {  // F54
  Connect("w0");
  const std::shared_ptr<RecordingLink> second = Connect("w1");
  const JobId id = Submit("r", 2);
  ReportExit("w1", 1, SIGABRT);
  v1::GetJobResponse response;
  controller_->jobs().GetJob(
      id, [&](absl::StatusOr<v1::GetJobResponse> answer) { response = *std::move(answer); });
  EndTurn();
  ASSERT_THAT(response.job().ranks(), SizeIs(2));
  EXPECT_EQ(response.job().ranks(1).status(), "lost");
  EXPECT_EQ(response.job().ranks(1).reason(), "killed by signal 6 (SIGABRT)");
  EXPECT_TRUE(response.job().has_spec());
}

TEST_F(JobDeskTest, AReaderWaitsForEntriesAndSeesEachOnce) {  // F52
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const JobId id = Submit("r", 1);
  Report(link, 1, ReadyReport(id, 0));
  const int64_t known = static_cast<int64_t>(Feed(id).size());
  const auto chunk = Read(id, known);
  EXPECT_FALSE(chunk->has_value());
  Report(link, 2, StepReportOf(id, 0, 1, 3.0));
  ASSERT_TRUE(chunk->has_value());
  ASSERT_THAT((*chunk)->entries, SizeIs(1));
  EXPECT_EQ((*chunk)->entries[0].sequence(), known + 1);
  EXPECT_FALSE((*chunk)->ended);
}

TEST_F(JobDeskTest, AReaderIsAnsweredWhenItsPatienceEnds) {
  const JobId id = Submit("r", 1);
  const auto chunk = Read(id, 100);
  Advance(absl::Milliseconds(249));
  EXPECT_FALSE(chunk->has_value());
  Advance(absl::Milliseconds(2));
  ASSERT_TRUE(chunk->has_value());
  EXPECT_THAT((*chunk)->entries, SizeIs(0));
}

TEST_F(JobDeskTest, AReaderOfAnEndedJobGetsAllOfItInPieces) {
  const JobId id = Submit("r", 1);
  ASSERT_TRUE(Cancel(id).ok());
  Restart();
  std::vector<int64_t> sequences;
  bool ended = false;
  for (int64_t after = 0; !ended; after = sequences.back()) {
    const auto chunk = Read(id, after);
    ASSERT_TRUE(chunk->has_value());
    for (const v1::JobEvent& entry : (*chunk)->entries) sequences.push_back(entry.sequence());
    ended = (*chunk)->ended;
  }
  EXPECT_EQ(sequences, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_TRUE(Feed(id).back().has_done());
}

TEST_F(JobDeskTest, AJobsLogIsBoundedAndSaysSo) {  // F52
  JobFeed feed;
  v1::JobEvent line;
  line.set_job_id("j-1");
  line.mutable_log()->set_text(std::string(2 * kLogLineBytes, 'x') + "é");
  EXPECT_EQ(feed.Add(line)->log().text().size(), static_cast<size_t>(kLogLineBytes));
  line.mutable_log()->set_text(std::string(kLogLineBytes - 1, 'x') + "é");
  EXPECT_EQ(feed.Add(line)->log().text(), std::string(kLogLineBytes - 1, 'x'));
  line.mutable_log()->set_text("short");
  for (int64_t number = 3; number < kLogLinesPerJob; ++number) {
    EXPECT_EQ(feed.Add(line)->log().text(), "short");
  }
  EXPECT_THAT(feed.Add(line)->log().text(), HasSubstr("log is full"));
  EXPECT_FALSE(feed.Add(line));
  v1::JobEvent step;
  step.set_job_id("j-1");
  step.mutable_step()->set_step(1);
  EXPECT_EQ(feed.Add(step)->sequence(), kLogLinesPerJob + 1);
}

TEST_F(JobDeskTest, DoneCountsTheStepsOfTheFeed) {
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const JobId id = Submit("r", 1);
  Report(link, 1, ReadyReport(id, 0));
  Report(link, 2, StepReportOf(id, 0, 7, 3.0));
  ASSERT_TRUE(Cancel(id).ok());
  EXPECT_EQ(Feed(id).back().done().steps(), 7);
}

TEST_F(JobDeskTest, AJobsSeriesEndWithIt) {  // F58
  Connect("w0");
  const JobId id = Submit("r", 1);
  Advance(absl::Milliseconds(400));
  const prometheus::TextSerializer serializer;
  EXPECT_THAT(serializer.Serialize(registry_->Collect()),
              AllOf(HasSubstr("sherd_job_info{job=\"tiny-1\""),
                    HasSubstr("sherd_jobs{state=\"FORMING\"} 1"),
                    HasSubstr("sherd_workers{status=\"busy\"} 1"),
                    HasSubstr("sherd_event_log_appends_total 2")));
  ASSERT_TRUE(Cancel(id).ok());
  Advance(absl::Milliseconds(400));
  EXPECT_THAT(serializer.Serialize(registry_->Collect()), Not(HasSubstr("job=\"tiny-1\"")));
}

}  // namespace
}  // namespace sherd
