// Users' requests: submissions with a look at the files, cancel, lists.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/job_desk_fixture.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(JobDeskTest, NobodyLearnsOfAJobBeforeItIsStored) {
  const std::shared_ptr<Answer> answer = SubmitLater("r");
  EXPECT_FALSE(answer->has_value());
  EndTurn();
  ASSERT_TRUE(answer->has_value());
  EXPECT_TRUE((*answer)->value().created());
}

TEST_F(JobDeskTest, ARetriedSubmitReturnsTheSameJob) {  // F53
  const JobId id = Submit("r", 1);
  const std::shared_ptr<Answer> again = SubmitLater("r");
  EndTurn();
  EXPECT_EQ((*again)->value().job().id(), id.value());
  EXPECT_FALSE((*again)->value().created());
  Restart();
  const std::shared_ptr<Answer> later = SubmitLater("r");
  EndTurn();
  EXPECT_EQ((*later)->value().job().id(), id.value());
  EXPECT_THAT(controller_->state().jobs, SizeIs(1));
}

TEST_F(JobDeskTest, RetriesDuringAnInspectionJoinIt) {  // F53
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const std::shared_ptr<Answer> first = SubmitLater("r");
  const std::shared_ptr<Answer> second = SubmitLater("r");
  EndTurn();
  Inspected(link, link->sent.back().inspect_data().request_id(), "");
  EXPECT_TRUE((*first)->value().created());
  EXPECT_FALSE((*second)->value().created());
  EXPECT_EQ((*first)->value().job().id(), (*second)->value().job().id());
}

TEST_F(JobDeskTest, AWorkerLooksAtTheFilesFirst) {
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const std::shared_ptr<Answer> answer = SubmitLater("r");
  EndTurn();
  EXPECT_FALSE(answer->has_value());
  ASSERT_TRUE(link->sent.back().has_inspect_data());
  const v1::InspectData& question = link->sent.back().inspect_data();
  EXPECT_EQ(question.seq_len(), RequestOf("r", 1).spec().train().seq_len());
  Inspected(link, question.request_id(), "data.train: data/train.txt is empty; give a text");
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string((*answer)->status().message()), HasSubstr("data/train.txt is empty"));
  v1::InvalidFields fields;
  ASSERT_TRUE(fields.ParseFromString(
      std::string(*(*answer)->status().GetPayload("type.googleapis.com/sherd.v1.InvalidFields"))));
  EXPECT_EQ(fields.fields(0).field(), "data.train");
  EXPECT_TRUE(
      (*answer)->status().GetPayload("type.googleapis.com/sherd.v1.InvalidFields").has_value());
  EXPECT_THAT(controller_->state().jobs, SizeIs(0));
}

// Else the client would point at another line.
TEST_F(JobDeskTest, TellsTheFieldOfWhateverAWorkerRefuses) {
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  for (const std::string field :
       {"model.from", "data.train", "data.eval", "data.validation_split", "data.tokenizer",
        "train.seq_len", "checkpoint.dir", "checkpoint.resume"}) {
    const std::shared_ptr<Answer> answer = SubmitLater(field);
    EndTurn();
    Inspected(link, link->sent.back().inspect_data().request_id(), field + ": it is not there");
    ASSERT_TRUE(answer->has_value());
    v1::InvalidFields fields;
    ASSERT_TRUE(fields.ParseFromString(std::string(
        *(*answer)->status().GetPayload("type.googleapis.com/sherd.v1.InvalidFields"))));
    EXPECT_EQ(fields.fields(0).field(), field);
    EXPECT_EQ(fields.fields(0).description(), "it is not there");
  }
}

TEST_F(JobDeskTest, AWorkerThatDoesNotLookInTimeIsAnError) {  // F33
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const std::shared_ptr<Answer> answer = SubmitLater("r");
  EndTurn();
  const uint64_t number = link->sent.back().inspect_data().request_id();
  for (int second = 0; second < 11; ++second) {
    Advance(absl::Seconds(1));
    Heartbeat(link);
  }
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string((*answer)->status().message()),
              AllOf(HasSubstr("1 worker did not answer within 10s"), HasSubstr("submit again")));
  // The late answer finds nothing.
  Inspected(link, number, "");
  EXPECT_THAT(controller_->state().jobs, SizeIs(0));
}

TEST_F(JobDeskTest, AnotherWorkerLooksWhenTheFirstGoesAway) {
  const std::shared_ptr<RecordingLink> first = Connect("w0");
  const std::shared_ptr<RecordingLink> second = Connect("w1");
  const std::shared_ptr<Answer> answer = SubmitLater("r");
  EndTurn();
  Disconnect(first);
  ASSERT_TRUE(second->sent.back().has_inspect_data());
  EXPECT_FALSE(answer->has_value());
  Disconnect(second);
  ASSERT_TRUE(answer->has_value());
  EXPECT_TRUE((*answer)->ok());
}

TEST_F(JobDeskTest, AWorkerOnANewStreamIsAskedAgain) {
  const std::shared_ptr<RecordingLink> old = Connect("w0");
  const std::shared_ptr<Answer> answer = SubmitLater("r");
  EndTurn();
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  EXPECT_THAT(link->Kinds(), testing::ElementsAre("welcome", "inspect"));
  Inspected(link, link->sent.back().inspect_data().request_id(), "");
  ASSERT_TRUE(answer->has_value());
  EXPECT_TRUE((*answer)->value().created());
}

TEST_F(JobDeskTest, OnlyTheWorkerThatWasAskedAnswers) {  // F55
  const std::shared_ptr<RecordingLink> first = Connect("w0");
  const std::shared_ptr<RecordingLink> second = Connect("w1");
  const std::shared_ptr<Answer> answer = SubmitLater("r");
  EndTurn();
  const uint64_t number = first->sent.back().inspect_data().request_id();
  Inspected(second, number, "data.train: a lie");
  EXPECT_FALSE(answer->has_value());
  Inspected(first, number, "");
  ASSERT_TRUE(answer->has_value());
  EXPECT_TRUE((*answer)->ok());
}

TEST_F(JobDeskTest, AnAnswerToAnEarlierLifeIsNoAnswer) {
  const std::shared_ptr<RecordingLink> before = Connect("w0");
  SubmitLater("r");
  EndTurn();
  const uint64_t number = before->sent.back().inspect_data().request_id();
  Restart();
  const std::shared_ptr<RecordingLink> after = Connect("w0");
  const std::shared_ptr<Answer> answer = SubmitLater("s");
  EndTurn();
  Inspected(after, number, "");
  EXPECT_FALSE(answer->has_value());
}

TEST_F(JobDeskTest, AMuteWorkerDoesNotBlockSubmissions) {  // F33
  const std::shared_ptr<RecordingLink> mute = Connect("w0");
  const std::shared_ptr<RecordingLink> second = Connect("w1");
  const std::shared_ptr<Answer> answer = SubmitLater("r");
  Advance(absl::Milliseconds(1900));
  EXPECT_FALSE(second->sent.back().has_inspect_data());
  Advance(absl::Milliseconds(200));
  ASSERT_TRUE(second->sent.back().has_inspect_data());
  Inspected(second, second->sent.back().inspect_data().request_id(), "");
  ASSERT_TRUE(answer->has_value());
  EXPECT_TRUE((*answer)->ok());
}

TEST_F(JobDeskTest, NoTwoLiveJobsShareADirectory) {
  v1::SubmitRequest request = RequestOf("a", 1);
  request.mutable_spec()->mutable_checkpoint()->set_dir("out/x");
  std::vector<absl::Status> answers;
  const auto submit = [&](const std::string& id, const std::string& dir) {
    request.set_request_id(id);
    request.mutable_spec()->mutable_checkpoint()->set_dir(dir);
    controller_->jobs().Submit(request, [&](absl::StatusOr<v1::SubmitResponse> response) {
      answers.push_back(response.status());
    });
    EndTurn();
    return answers.back();
  };
  EXPECT_TRUE(submit("a", "out/x").ok());
  EXPECT_TRUE(submit("a", "out/x").ok());
  const absl::Status refused = submit("b", "out/./y/../x/");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("tiny-1"), HasSubstr("another checkpoint.dir, or wait")));
  EXPECT_TRUE(submit("c", "out/y").ok());
  ASSERT_TRUE(Cancel(JobId("tiny-1")).ok());
  EXPECT_TRUE(submit("b", "out/x").ok());
  // Nor does one write inside the other's.
  EXPECT_FALSE(submit("d", "out/x/inner").ok());
  EXPECT_FALSE(submit("e", "out").ok());
  EXPECT_FALSE(submit("e", ".").ok());
  EXPECT_TRUE(submit("f", "out/xy").ok());
}

TEST_F(JobDeskTest, RelativeDirectoriesBeginAtTheWorkersOutputRoot) {
  v1::Hello hello = HelloOf("w0", 1);
  hello.set_output_root("/srv/out/");
  const std::shared_ptr<RecordingLink> link = Connect(hello);
  const auto submit = [&](const std::string& id, const std::string& dir) {
    v1::SubmitRequest request = RequestOf(id, 1);
    request.mutable_spec()->mutable_checkpoint()->set_dir(dir);
    absl::Status status = absl::UnknownError("no answer");
    controller_->jobs().Submit(
        request, [&](absl::StatusOr<v1::SubmitResponse> answer) { status = answer.status(); });
    EndTurn();
    if (link->sent.back().has_inspect_data()) {
      Inspected(link, link->sent.back().inspect_data().request_id(), "");
    }
    return status;
  };
  EXPECT_TRUE(submit("a", "same").ok());
  const absl::Status refused = submit("b", "/srv/out/same");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("job tiny-1"));
  EXPECT_FALSE(submit("c", "/srv/out/x/../same/inner").ok());
  EXPECT_FALSE(submit("d", "/srv").ok());
  EXPECT_TRUE(submit("e", "/elsewhere/same").ok());
}

TEST_F(JobDeskTest, JobsThatMeetInOneDirectoryOnlyOnceAWorkerNamesItsRootDoNotBothRun) {
  std::vector<absl::Status> answers;
  for (const char* dir : {"same", "/srv/out/same/inner", "other"}) {
    v1::SubmitRequest request = RequestOf(dir, 1);
    request.mutable_spec()->mutable_checkpoint()->set_dir(dir);
    controller_->jobs().Submit(request, [&](absl::StatusOr<v1::SubmitResponse> answer) {
      answers.push_back(answer.status());
    });
  }
  EndTurn();
  EXPECT_THAT(answers, testing::Each(absl::OkStatus()));
  for (const char* worker : {"w0", "w1"}) {
    v1::Hello hello = HelloOf(worker, 1);
    hello.set_output_root("/srv/out");
    Connect(hello);
  }
  EXPECT_EQ(Job(JobId("tiny-1")).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(Job(JobId("tiny-2")).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job(JobId("tiny-2")).reason, HasSubstr("job tiny-1 is FORMING and writes to"));
  // Its workers went to the next.
  EXPECT_EQ(Job(JobId("tiny-3")).state, v1::JOB_STATE_FORMING);
}

TEST_F(JobDeskTest, NoJobTakesTheDefaultDirectoryOfAnother) {
  const JobId first = Submit("a", 1);
  EXPECT_EQ(first, JobId("tiny-1"));
  v1::SubmitRequest request = RequestOf("b", 1);
  std::vector<absl::Status> answers;
  const auto keep = [&](absl::StatusOr<v1::SubmitResponse> answer) {
    answers.push_back(answer.status());
  };
  request.mutable_spec()->mutable_checkpoint()->set_dir("tiny-1");
  controller_->jobs().Submit(request, keep);
  request.mutable_spec()->mutable_checkpoint()->set_dir("tiny-3");
  controller_->jobs().Submit(request, keep);
  EndTurn();
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_FALSE(answers[0].ok());
  EXPECT_TRUE(answers[1].ok());
  // The third job's own id is taken now.
  controller_->jobs().Submit(RequestOf("c", 1), keep);
  EndTurn();
  EXPECT_THAT(std::string(answers.back().message()), HasSubstr("job tiny-2"));
}

TEST_F(JobDeskTest, TheDefaultDirectoryIsTheJobsId) {
  for (const char* request : {"a", "b"}) {
    const JobId id = Submit(request, 1);
    EXPECT_EQ(Job(id).spec.checkpoint().dir(), id.value());
  }
}

TEST_F(JobDeskTest, CancelIsIdempotentAndRefusesOtherEnds) {
  const JobId id = Submit("r", 1);
  EXPECT_EQ(Cancel(id)->job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Cancel(id)->job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Cancel(JobId("none-1")).status().code(), absl::StatusCode::kNotFound);

  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const JobId done = Submit("s", 1);
  Report(link, 1, ReadyReport(done, 0));
  Report(link, 2, FinishedReport(done, 0));
  EXPECT_EQ(Cancel(done).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(JobDeskTest, ListsJobsNewestFirstWithStepAndLoss) {
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const JobId running = Submit("a", 1);
  const JobId queued = Submit("b", 1);
  Report(link, 1, ReadyReport(running, 0));
  Report(link, 2, StepReportOf(running, 0, 12, 2.125));
  v1::ListJobsResponse list;
  controller_->jobs().ListJobs(
      0, [&](absl::StatusOr<v1::ListJobsResponse> answer) { list = *std::move(answer); });
  EndTurn();
  ASSERT_THAT(list.jobs(), SizeIs(2));
  EXPECT_EQ(list.jobs(0).id(), queued.value());
  EXPECT_EQ(list.jobs(1).step(), 12);
  EXPECT_EQ(list.jobs(1).loss(), 2.125);
  EXPECT_FALSE(list.jobs(1).has_spec());
}

TEST_F(JobDeskTest, ALongListComesInParts) {
  const std::string sentence(4000, 'x');
  for (int number = 1; number <= 600; ++number) {
    v1::SubmitRequest request = RequestOf(absl::StrCat("r", number), 1);
    request.mutable_spec()->set_name(sentence);
    controller_->jobs().Submit(request, [](absl::StatusOr<v1::SubmitResponse>) {});
  }
  EndTurn();
  std::vector<std::string> seen;
  int parts = 0;
  v1::ListJobsResponse list;
  do {
    controller_->jobs().ListJobs(list.next(), [&](absl::StatusOr<v1::ListJobsResponse> answer) {
      list = *std::move(answer);
    });
    EndTurn();
    EXPECT_LE(list.ByteSizeLong(), size_t{2} << 20);
    for (const v1::Job& job : list.jobs()) seen.push_back(job.id());
    ++parts;
  } while (list.next() > 0 && parts < 100);
  EXPECT_GT(parts, 2);
  ASSERT_THAT(seen, SizeIs(600));
  EXPECT_THAT(seen.front(), testing::EndsWith("-600"));
  EXPECT_THAT(seen.back(), testing::EndsWith("-1"));
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), seen.size());
}

}  // namespace
}  // namespace sherd
