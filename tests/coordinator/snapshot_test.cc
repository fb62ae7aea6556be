// A state that was stored and read again is the same one.

#include "coordinator/core/snapshot.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using ::testing::HasSubstr;

void Fill(Message& message, int number);

// One value; of a repeated field, one more element. Strings of equal places in lists are equal, so
// that one list may name the elements of another.
void FillField(Message& message, const FieldDescriptor& field, int number) {
  const Reflection& to = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return list ? to.AddInt32(&message, &field, number) : to.SetInt32(&message, &field, number);
    case FieldDescriptor::CPPTYPE_INT64:
      return list ? to.AddInt64(&message, &field, number) : to.SetInt64(&message, &field, number);
    case FieldDescriptor::CPPTYPE_UINT64:
      return list ? to.AddUInt64(&message, &field, number) : to.SetUInt64(&message, &field, number);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? to.AddDouble(&message, &field, number) : to.SetDouble(&message, &field, number);
    case FieldDescriptor::CPPTYPE_BOOL:
      return list ? to.AddBool(&message, &field, true) : to.SetBool(&message, &field, true);
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? to.AddString(&message, &field, absl::StrCat("x", number))
                  : to.SetString(&message, &field, absl::StrCat("x", number));
    case FieldDescriptor::CPPTYPE_ENUM:
      return list ? to.AddEnumValue(&message, &field, 1) : to.SetEnumValue(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Fill(list ? *to.AddMessage(&message, &field) : *to.MutableMessage(&message, &field),
                  number);
    default:
      FAIL() << field.full_name() << " is of a type that the test does not know";
  }
}

void Fill(Message& message, int number) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const int elements = field.is_repeated() ? 2 : 1;
    for (int element = 0; element < elements; ++element) {
      FillField(message, field, field.is_repeated() ? element + 1 : number);
    }
  }
}

// What is written is complete by construction (snapshot.cc); this is what shows that all of it is
// read: no field has the value that it has without being read.
TEST(Snapshot, EveryFieldIsReadAndWritten) {
  v1::StoredState filled;
  Fill(filled, 7);
  filled.set_format(kStateFormat);
  const absl::StatusOr<State> state = ReadState(filled);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(WriteState(*state).DebugString(), filled.DebugString());
}

TEST(Snapshot, AStateReadFromItGoesOnAsTheOneWritten) {
  Scenario scenario;
  scenario.JoinWorkers(5);
  const JobId id = scenario.Run({.min_workers = 2, .max_workers = 4});
  scenario.Do(Progressed(scenario.job(id), 3));
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 3));
  State copy = *ReadState(WriteState(scenario.state()));
  ASSERT_EQ(Describe(copy), Describe(scenario.state()));
  const size_t before = scenario.log().size();
  scenario.ReleaseAll(id, 3);
  scenario.Submit();
  scenario.ReportAll(id, kReady);
  Actions actions;
  for (size_t at = before; at < scenario.log().size(); ++at) {
    actions = Apply(scenario.log()[at], copy);
  }
  EXPECT_EQ(Describe(copy), Describe(scenario.state()));
  EXPECT_EQ(actions.size(), scenario.actions().size());
}

TEST(Snapshot, OneThatNamesWhatItDoesNotHaveIsRefused) {
  Scenario scenario;
  scenario.Submit();
  v1::StoredState stored = WriteState(scenario.state());
  stored.set_queue(0, "other-1");
  const absl::Status status = ReadState(stored).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("other-1"));
}

TEST(Snapshot, OneOfAnotherFormatIsRefused) {
  v1::StoredState stored = WriteState({});
  stored.set_format(kStateFormat + 1);
  EXPECT_EQ(ReadState(stored).status().code(), absl::StatusCode::kDataLoss);
  stored.set_format(kOldestStateFormat - 1);
  EXPECT_EQ(ReadState(stored).status().code(), absl::StatusCode::kDataLoss);
  stored.set_format(kOldestStateFormat);
  EXPECT_TRUE(ReadState(stored).ok());
}

TEST(Snapshot, OneOfTheFirstFormatIsReadAsIfNothingOfTheNewHadHappened) {
  Scenario scenario;
  scenario.JoinWorkers(1);
  const JobId id = scenario.Run({});
  v1::StoredState stored = WriteState(scenario.state());
  stored.set_format(1);
  const absl::StatusOr<State> state = ReadState(stored);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->jobs.at(id).told_epoch, Epoch());
}

// A thousand ended jobs are kept, and go into every snapshot: of each little more may stay than its
// specification and how its ranks ended.
TEST(Snapshot, JobsThatHaveEndedAreSmall) {
  constexpr int kWorld = 64;
  Scenario scenario;
  for (int number = 0; number < kWorld + 1; ++number) {
    scenario.Do(Joined(absl::StrCat("host-", number / 8, "/cpu:", number % 8, number / kWorld), 1,
                       absl::StrCat("host-", number / 8)));
  }
  const auto end = [&] {
    const JobId id = scenario.Run({.max_workers = kWorld, .replicas = 2});
    scenario.Do(Progressed(scenario.job(id), 17));
    scenario.Do(Failed(scenario.job(id), 1, std::string(3000, 'x'), 17));
    scenario.ReleaseAll(id, 17);
    scenario.ReportAll(id, kReady);
    scenario.Do(Progressed(scenario.job(id), 18));
    const JobRecord last = scenario.job(id);
    scenario.Do(CancelRequest(id));
    for (int rank = 0; rank < kWorld; ++rank) scenario.Do(Released(last, rank, 18));
  };
  const auto bytes = [&] {
    return static_cast<int64_t>(WriteState(scenario.state()).ByteSizeLong());
  };
  end();
  const int64_t one = bytes();
  for (int job = 0; job < 10; ++job) end();
  const int64_t each = (bytes() - one) / 10;
  RecordProperty("bytes_of_an_ended_job", std::to_string(each));
  EXPECT_LT(each, 3000);
}

// An ended job is known until a thousand others have ended, too, and for ten minutes in any case.
TEST(Forgetting, TheOldestEndedJobsGoWithTheirRequests) {
  Scenario scenario;
  const auto end = [&] {
    const JobId id = scenario.Submit();
    scenario.Do(CancelRequest(id));
    return id;
  };
  const JobId first = scenario.Submit({.request_id = "first"});
  scenario.Do(CancelRequest(first));
  const JobId second = end();
  const JobId waiting = scenario.Submit();
  while (scenario.state().ended.size() < kEndedJobsKept + 1) end();
  EXPECT_NE(FindJob(scenario.state(), first), nullptr) << "it has not been long enough";

  scenario.Advance(kEndedToldMs + 1);
  scenario.Do(Joined("w0", 1));
  ASSERT_EQ(scenario.ActionsOf<DropFeed>().size(), 1u);
  EXPECT_EQ(scenario.ActionsOf<DropFeed>()[0].job, first);
  EXPECT_EQ(FindJob(scenario.state(), first), nullptr);
  EXPECT_NE(FindJob(scenario.state(), second), nullptr);
  EXPECT_NE(FindJob(scenario.state(), waiting), nullptr);
  EXPECT_EQ(scenario.state().ended.size(), kEndedJobsKept);
  // A new submission, by now.
  const JobId again = scenario.Submit({.request_id = "first"});
  EXPECT_NE(FindJob(scenario.state(), again), nullptr);
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

// It said that it works for a job of which nothing is known any more: it is told to stop, and is
// idle when it has.
TEST(Forgetting, AWorkerOfAForgottenJobIsFreed) {
  Scenario scenario;
  v1::DurableEvent event = Joined("w0", 1);
  event.mutable_worker_joined()->set_job_id("forgotten-1");
  event.mutable_worker_joined()->set_epoch(3);
  event.mutable_worker_joined()->set_rank(1);
  scenario.Do(event);
  EXPECT_THAT(scenario.Aborted(), testing::ElementsAre("w0"));
  v1::DurableEvent released;
  v1::RankChanged& changed = *released.mutable_rank_changed();
  changed.set_job_id("forgotten-1");
  changed.set_epoch(3);
  changed.set_rank(1);
  changed.set_milestone(kReleased);
  changed.set_worker_id("w0");
  changed.set_incarnation(1);
  changed.add_holdings()->set_step(2);
  scenario.Do(released);
  EXPECT_FALSE(scenario.worker("w0").seat);
  ASSERT_EQ(scenario.ActionsOf<SendRetain>().size(), 1u);
  EXPECT_TRUE(scenario.ActionsOf<SendRetain>()[0].ended);
}

}  // namespace
}  // namespace sherd
