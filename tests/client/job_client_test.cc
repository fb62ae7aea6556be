#include "client/job_client.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "sherd/v1/job_service.grpc.pb.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A coordinator that answers as a test scripts it.
class FakeJobs final : public v1::JobService::Service {
 public:
  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    absl::MutexLock lock(&mutex_);
    const bool created = request_ids_.insert(request->request_id()).second;
    response->set_created(created);
    response->mutable_job()->set_id(absl::StrCat("job-", request_ids_.size()));
    if (failures_ > 0) {
      --failures_;
      // The job was made; its answer is lost on the way.
      return {grpc::StatusCode::UNAVAILABLE, "connection reset"};
    }
    return refusal_;
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::GetJobResponse*) override {
    return {grpc::StatusCode::NOT_FOUND, absl::StrCat("no job has the id ", request->job_id())};
  }

  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    if (request->worker_id() != "w0") return {grpc::StatusCode::NOT_FOUND, "no such worker"};
    response->mutable_worker()->set_id("w0");
    response->mutable_worker()->set_status("draining");
    return grpc::Status::OK;
  }

  // Ten jobs, three an answer.
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    int64_t number = request->next() > 0 ? request->next() : 10;
    for (int i = 0; i < 3 && number > 0; ++i, --number) {
      response->add_jobs()->set_id(absl::StrCat("job-", number));
    }
    response->set_next(number);
    return grpc::Status::OK;
  }

  // Sends up to `events_a_stream_` events of a feed of `feed_` a stream, then cuts it.
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    int64_t feed = 0, end = 0;
    grpc::Status cut;
    bool hang = false;
    {
      absl::MutexLock lock(&mutex_);
      ++streams_;
      feed = feed_;
      end = request->after_sequence() + events_a_stream_;
      cut = cut_;
      hang = hang_;
    }
    // One event more than asked for: a resumed stream may overlap.
    for (int64_t n = std::max<int64_t>(1, request->after_sequence()); n <= feed && n <= end; ++n) {
      v1::WatchResponse response;
      response.mutable_event()->set_sequence(n);
      if (n == feed) response.mutable_event()->mutable_done()->set_state(v1::JOB_STATE_FAILED);
      writer->Write(response);
    }
    while (hang && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return end >= feed ? grpc::Status::OK : cut;
  }

  absl::Mutex mutex_;
  std::set<std::string> request_ids_ ABSL_GUARDED_BY(mutex_);
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  int64_t feed_ ABSL_GUARDED_BY(mutex_) = 7;
  int64_t events_a_stream_ ABSL_GUARDED_BY(mutex_) = 100;
  grpc::Status cut_ ABSL_GUARDED_BY(mutex_) = grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut");
  bool hang_ ABSL_GUARDED_BY(mutex_) = false;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

class JobClientTest : public ::testing::Test {
 protected:
  JobClientTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    client_ = std::make_unique<JobClient>(address_);
  }
  ~JobClientTest() override { StopServer(); }

  void StopServer() {
    if (server_ == nullptr) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_->Wait();
    server_.reset();
  }

  absl::Status Watch(std::vector<int64_t>& seen, absl::Duration patience = absl::Seconds(20)) {
    return client_->Watch(
        "job-1", patience,
        {[&](const v1::JobEvent& event) { seen.push_back(event.sequence()); },
         [&](const std::string& sentence) { interruptions_.push_back(sentence); }});
  }

  FakeJobs jobs_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<JobClient> client_;
  std::vector<std::string> interruptions_;
};

// F53: the answer to the first two attempts is lost; the third returns the same job.
TEST_F(JobClientTest, ARetriedSubmitMakesOneJob) {
  {
    absl::MutexLock lock(&jobs_.mutex_);
    jobs_.failures_ = 2;
  }
  const absl::StatusOr<v1::Job> job = client_->Submit(v1::JobSpec(), "once");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id(), "job-1");
  absl::MutexLock lock(&jobs_.mutex_);
  EXPECT_THAT(jobs_.request_ids_, ElementsAre("once"));
}

TEST_F(JobClientTest, RequestIdsDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.insert(NewRequestId());
  EXPECT_EQ(ids.size(), 100u);
}

// F55: what the coordinator refuses keeps its fields on the way.
TEST_F(JobClientTest, BringsInvalidFieldsBack) {
  v1::InvalidFields fields;
  fields.add_fields()->set_field("data.train[0]");
  fields.mutable_fields(0)->set_description("is empty");
  v1::RpcStatus details;
  details.add_details()->PackFrom(fields);
  {
    absl::MutexLock lock(&jobs_.mutex_);
    jobs_.refusal_ = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the job cannot run",
                                  details.SerializeAsString());
  }
  const absl::Status refused = client_->Submit(v1::JobSpec(), "a").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(InvalidFieldsOf(refused).has_value());
  EXPECT_EQ(InvalidFieldsOf(refused)->fields(0).description(), "is empty");
  EXPECT_FALSE(InvalidFieldsOf(absl::InvalidArgumentError("x")).has_value());
}

TEST_F(JobClientTest, DrainsAWorker) {
  const absl::StatusOr<v1::Worker> worker = client_->Drain("w0");
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->status(), "draining");
  EXPECT_EQ(client_->Drain("w1").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobClientTest, PassesTheServersSentenceOn) {
  const absl::Status missing = client_->GetJob("nope").status();
  EXPECT_EQ(missing, absl::NotFoundError("no job has the id nope"));
}

// A server that ran out of its own time has been reached.
TEST_F(JobClientTest, PassesTheServersDeadlineOn) {
  {
    absl::MutexLock lock(&jobs_.mutex_);
    jobs_.refusal_ = {grpc::StatusCode::DEADLINE_EXCEEDED, "worker h/cpu:0 did not answer"};
  }
  EXPECT_EQ(client_->Submit(v1::JobSpec(), "a").status(),
            absl::DeadlineExceededError("worker h/cpu:0 did not answer"));
}

TEST_F(JobClientTest, SaysWhereItSoughtTheCoordinator) {
  StopServer();
  const absl::Status refused = client_->ListJobs().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("cannot reach the coordinator at ", address_,
                                     ": Connection refused; is it running?")));
}

TEST_F(JobClientTest, FollowsAFeedToItsEnd) {
  std::vector<int64_t> seen;
  EXPECT_TRUE(Watch(seen).ok());
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(interruptions_, ::testing::IsEmpty());
}

TEST_F(JobClientTest, ListsAllJobsInAsManyCallsAsItTakes) {
  const absl::StatusOr<std::vector<v1::Job>> jobs = client_->ListJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 10u);
  EXPECT_EQ(jobs->front().id(), "job-10");
  EXPECT_EQ(jobs->back().id(), "job-1");
}

TEST_F(JobClientTest, AwaitsACoordinatorThatIsAway) {
  StopServer();
  const absl::Time start = absl::Now();
  const auto say = [&](const std::string& sentence) { interruptions_.push_back(sentence); };
  const absl::Status away = client_->AwaitJob("a", absl::Milliseconds(300), say).status();
  EXPECT_EQ(away.code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(250));
  EXPECT_THAT(interruptions_, ElementsAre(HasSubstr("cannot reach the coordinator at")));
}

TEST_F(JobClientTest, AwaitsNoJobThatIsNotThere) {
  const auto say = [&](const std::string& sentence) { interruptions_.push_back(sentence); };
  EXPECT_EQ(client_->AwaitJob("a", absl::Seconds(20), say).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(interruptions_, ::testing::IsEmpty());
}

// F30, F52: a broken stream is resumed, without a gap or a repeat, however it broke.
TEST_F(JobClientTest, ResumesABrokenStreamAfterTheLastEvent) {
  for (const grpc::Status& cut :
       {grpc::Status(grpc::StatusCode::UNAVAILABLE, "x"), grpc::Status::OK,
        grpc::Status(grpc::StatusCode::INTERNAL, "x")}) {
    {
      absl::MutexLock lock(&jobs_.mutex_);
      jobs_.events_a_stream_ = 3;
      jobs_.cut_ = cut;
    }
    std::vector<int64_t> seen;
    EXPECT_TRUE(Watch(seen).ok());
    EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4, 5, 6, 7));
  }
  EXPECT_THAT(interruptions_[0], HasSubstr("lost the coordinator at"));
}

TEST_F(JobClientTest, GivesUpWhenTheCoordinatorStaysAway) {
  {
    absl::MutexLock lock(&jobs_.mutex_);
    jobs_.events_a_stream_ = 0;
  }
  std::vector<int64_t> seen;
  const absl::Time start = absl::Now();
  EXPECT_EQ(Watch(seen, absl::Milliseconds(300)).code(), absl::StatusCode::kUnavailable);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  StopServer();
  EXPECT_EQ(Watch(seen, absl::Milliseconds(300)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(JobClientTest, DoesNotInsistOnAJobThatIsNotThere) {
  {
    absl::MutexLock lock(&jobs_.mutex_);
    jobs_.events_a_stream_ = 0;
    jobs_.cut_ = grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
  }
  std::vector<int64_t> seen;
  EXPECT_EQ(Watch(seen), absl::NotFoundError("no such job"));
}

TEST_F(JobClientTest, StopsWatchingFromAnotherThread) {
  {
    absl::MutexLock lock(&jobs_.mutex_);
    jobs_.events_a_stream_ = 2;
    jobs_.hang_ = true;
  }
  absl::Notification two_seen;
  std::thread stopper([&] {
    two_seen.WaitForNotificationWithTimeout(absl::Seconds(20));
    client_->StopWatching();
  });
  const absl::Status watched = client_->Watch("job-1", absl::Seconds(20),
                                              {[&](const v1::JobEvent& event) {
                                                 if (event.sequence() == 2) two_seen.Notify();
                                               },
                                               [](const std::string&) {}});
  stopper.join();
  EXPECT_EQ(watched.code(), absl::StatusCode::kCancelled);
}

// A far or a busy coordinator answers late: who connects must not hang up on it. One second is ten
// times the pause between two attempts.
TEST(JobClientConnection, GetsTimeToComeAbout) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  JobClient client(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  std::thread caller([&] { EXPECT_FALSE(client.GetJob("a").ok()); });
  const int connection = ::accept(listener, nullptr, nullptr);
  pollfd hung_up = {.fd = connection, .events = POLLRDHUP, .revents = 0};
  EXPECT_EQ(::poll(&hung_up, 1, 1'000), 0) << "the client hung up";
  ::close(connection);
  ::close(listener);
  caller.join();
}

}  // namespace
}  // namespace sherd
