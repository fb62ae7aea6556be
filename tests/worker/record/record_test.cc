#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tests/support/temporary_directory.h"
#include "worker/checkpoint/save.h"
#include "worker/record/figures.h"
#include "worker/record/job_record.h"

namespace sherd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::StepReport Step(int64_t step, double loss) {
  v1::StepReport report;
  report.set_step(step);
  report.set_epoch(1);
  report.set_loss(loss);
  report.set_grad_norm(0.1);
  report.set_tokens(64);
  return report;
}

v1::EvalReport Eval(int64_t step, double loss) {
  v1::EvalReport report;
  report.set_step(step);
  report.set_loss(loss);
  return report;
}

Figures FiguresOfStep(int64_t step) {
  Figures figures;
  figures.step = step;
  figures.values = {{"loss", 0.5}};
  return figures;
}

class JobRecordTest : public testing::Test {
 protected:
  std::unique_ptr<JobRecord> Begin(int64_t epoch, int64_t last,
                                   std::vector<v1::StepReport> known = {}) {
    return std::make_unique<JobRecord>(*files_, directory_, epoch, last, std::move(known));
  }
  std::string Lines() const { return ReadFile(directory_ + "/" + kMetricsFile); }
  std::string Events() const { return ReadFile(directory_ + "/" + kEventsFile); }
  // "step 3: 0.5", "eval 3: 0.25", in the order of metrics.jsonl.
  std::vector<std::string> Told() const {
    std::vector<std::string> told;
    for (const absl::string_view line : absl::StrSplit(Lines(), '\n', absl::SkipEmpty())) {
      const auto json = nlohmann::json::parse(line.begin(), line.end());
      told.push_back(absl::StrCat(json["event"].get<std::string>(), " ",
                                  json["step"].get<int64_t>(), ": ", json["loss"].get<double>()));
    }
    return told;
  }
  // The same of the event file, without the losses.
  std::vector<std::string> ToldToTensorBoard() const {
    const std::string bytes = Events();
    absl::string_view rest = bytes;
    std::vector<std::string> told;
    bool evaluation = false;
    int64_t step = 0;
    EXPECT_TRUE(TensorBoardEvents().Take(rest, evaluation, step));
    EXPECT_EQ(step, 0);
    while (TensorBoardEvents().Take(rest, evaluation, step)) {
      told.push_back(absl::StrCat(evaluation ? "eval " : "step ", step));
    }
    EXPECT_TRUE(rest.empty());
    return told;
  }

  const TemporaryDirectory scratch_;
  const std::string directory_ = scratch_ / "weights";
  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
};

TEST(Crc32c, IsThatOfThePublishedVectors) {  // RFC 3720, B.4
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST(TensorBoardEvents, AreFramedAsPublished) {
  Figures figures = FiguresOfStep(300);
  figures.time = 1.5;
  const std::string record = TensorBoardEvents().Record(figures);
  const std::string message(
      "\x09\x00\x00\x00\x00\x00\x00\xF8\x3F"  // wall_time: 1.5
      "\x10\xAC\x02"                          // step: 300
      "\x2A\x13"                              // summary
      "\x0A\x11"                              // value
      "\x0A\x0Atrain/loss"                    // tag
      "\x15\x00\x00\x00\x3F",                 // simple_value: 0.5
      9 + 3 + 2 + 2 + 12 + 5);
  ASSERT_EQ(record.size(), 8 + 4 + message.size() + 4);
  EXPECT_EQ(record[0], static_cast<char>(message.size()));
  EXPECT_EQ(record.substr(12, message.size()), message);
}

TEST(TensorBoardEvents, DamagedOnesAreNotTaken) {
  const std::string record = TensorBoardEvents().Record(FiguresOfStep(7));
  bool evaluation = false;
  int64_t step = 0;
  for (size_t size = 0; size < record.size(); ++size) {
    absl::string_view cut = absl::string_view(record).substr(0, size);
    EXPECT_FALSE(TensorBoardEvents().Take(cut, evaluation, step)) << size;
  }
  for (size_t at = 0; at < record.size(); ++at) {
    std::string changed = record;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    absl::string_view rest = changed;
    EXPECT_FALSE(TensorBoardEvents().Take(rest, evaluation, step)) << at;
  }
}

TEST_F(JobRecordTest, WritesStepsAndEvaluationsOnceAndInOrder) {
  {
    const auto record = Begin(1, 0);
    record->Add(Step(1, 0.5));
    record->Add(Step(2, 0.1));
    record->Add(Eval(2, 0.25));
    record->Add(Step(2, 0.1));
    record->Add(Eval(2, 0.25));
    record->Add(Step(3, 0.3));
  }
  EXPECT_THAT(Told(), ElementsAre("step 1: 0.5", "step 2: 0.1", "eval 2: 0.25", "step 3: 0.3"));
  EXPECT_THAT(ToldToTensorBoard(), ElementsAre("step 1", "step 2", "eval 2", "step 3"));
  EXPECT_THAT(Lines(), HasSubstr("\"grad_norm\":0.1,"));
  EXPECT_TRUE(CheckRoot(*files_, directory_).ok());
}

TEST_F(JobRecordTest, WritesNothingBeforeThereIsSomething) {
  Begin(1, 0).reset();
  EXPECT_TRUE(absl::IsNotFound(files_->List(directory_).status()));
}

// A later epoch goes on where the one before it was committed, and knows what that did not write.
TEST_F(JobRecordTest, GoesOnAfterADeath) {
  {
    const auto record = Begin(1, 0);
    for (const int64_t step : {1, 2, 3}) record->Add(Step(step, 0.5));
  }
  // Cut off in the middle of a record.
  std::ofstream(directory_ + "/" + kMetricsFile, std::ios::app) << "{\"event\":\"step\",\"st";
  std::ofstream(directory_ + "/" + kEventsFile, std::ios::app | std::ios::binary)
      << TensorBoardEvents().Record(FiguresOfStep(4)).substr(0, 30);
  {
    const auto record = Begin(2, 5, {Step(3, 0.5), Step(4, 0.4), Step(5, 0.3)});
    record->Add(Step(6, 0.2));
  }
  EXPECT_THAT(Told(), ElementsAre("step 1: 0.5", "step 2: 0.5", "step 3: 0.5", "step 4: 0.4",
                                  "step 5: 0.3", "step 6: 0.2"));
  EXPECT_THAT(ToldToTensorBoard(),
              ElementsAre("step 1", "step 2", "step 3", "step 4", "step 5", "step 6"));
}

// What a job that goes on from an older step trains again is told once, as it is now.
TEST_F(JobRecordTest, TakesBackWhatIsTrainedAgain) {
  {
    const auto record = Begin(1, 0);
    for (const int64_t step : {1, 2, 3, 4}) record->Add(Step(step, 0.5));
    record->Add(Eval(4, 0.5));
  }
  {
    const auto record = Begin(2, 2);
    record->Add(Step(3, 0.25));
    record->Add(Eval(4, 0.125));
  }
  EXPECT_THAT(Told(), ElementsAre("step 1: 0.5", "step 2: 0.5", "step 3: 0.25", "eval 4: 0.125"));
  EXPECT_THAT(ToldToTensorBoard(), ElementsAre("step 1", "step 2", "step 3", "eval 4"));
  // Another job from the start begins anew.
  Begin(1, 0)->Add(Step(1, 2));
  EXPECT_THAT(Told(), ElementsAre("step 1: 2"));
}

// F25: a process that thaws after its epoch has ended writes to nothing.
TEST_F(JobRecordTest, WhoComesLateChangesNothing) {
  auto frozen = Begin(1, 0);
  frozen->Add(Step(1, 0.5));
  while (Told().empty() || Events().size() < 100) std::this_thread::yield();
  {
    const auto record = Begin(2, 1);
    record->Add(Step(2, 0.4));
  }
  frozen->Add(Step(2, 0.3));
  frozen.reset();
  EXPECT_THAT(Told(), ElementsAre("step 1: 0.5", "step 2: 0.4"));
  EXPECT_THAT(ToldToTensorBoard(), ElementsAre("step 1", "step 2"));
}

TEST_F(JobRecordTest, FailureIsToldOnce) {
  scratch_.Write("weights", "a file where the directory should be");
  const auto record = Begin(1, 0);
  record->Add(Step(1, 0.5));
  absl::Status failure;
  while (failure.ok()) failure = record->TakeFailure();
  EXPECT_THAT(std::string(failure.message()), HasSubstr("weights"));
  record->Add(Step(2, 0.5));
  EXPECT_TRUE(record->TakeFailure().ok());
}

}  // namespace
}  // namespace sherd
