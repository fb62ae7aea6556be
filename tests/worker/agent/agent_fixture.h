// An agent with a trainer that does what the test says, under a fake coordinator.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/worker/agent/fake_coordinator.h"
#include "worker/agent/agent.h"

namespace sherd {

// What a job's fake trainer does, told by the test from outside.
struct Script {
  absl::Mutex mutex;
  TrainObserver* running ABSL_GUARDED_BY(mutex) = nullptr;
  bool finish ABSL_GUARDED_BY(mutex) = false;
  bool aborted ABSL_GUARDED_BY(mutex) = false;
  bool paused ABSL_GUARDED_BY(mutex) = false;
  bool deaf ABSL_GUARDED_BY(mutex) = false;  // does not hear aborts
  std::atomic<int> alive{0};

  // The observer of the trainer that runs.
  TrainObserver* AwaitRunning() {
    absl::MutexLock lock(&mutex);
    const auto runs = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return running != nullptr; };
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&runs), absl::Seconds(kPatienceSeconds)));
    return running;
  }
  void Finish() {
    absl::MutexLock lock(&mutex);
    finish = true;
  }
};

class FakeTrainer final : public Trainer {
 public:
  explicit FakeTrainer(Script& script) : script_(script) { ++script_.alive; }
  ~FakeTrainer() override { --script_.alive; }

  TrainResult Run(TrainObserver& observer) override {
    observer.OnReady(v1::RankReady());
    absl::MutexLock lock(&script_.mutex);
    script_.running = &observer;
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(script_.mutex) {
      return script_.finish || script_.paused || (script_.aborted && !script_.deaf);
    };
    script_.mutex.Await(absl::Condition(&over));
    script_.running = nullptr;
    TrainResult result;
    result.step = 9;
    for (int64_t step = 8; step <= 9; ++step) {
      result.last_steps.emplace_back();
      result.last_steps.back().set_step(step);
    }
    if (script_.aborted) result.status = absl::AbortedError("aborted");
    result.paused = script_.paused;
    script_.finish = script_.aborted = script_.paused = false;
    return result;
  }
  void Abort(absl::string_view) override {
    absl::MutexLock lock(&script_.mutex);
    script_.aborted = true;
  }
  void Pause() override {
    absl::MutexLock lock(&script_.mutex);
    script_.paused = true;
  }
  TrainPosition Position() override {
    return {9, "backward h.3 round 0", true, {}, /*copied_bytes=*/77};
  }

 private:
  Script& script_;
};

// An agent under a fake coordinator, on a thread of its own.
class AgentTest : public testing::Test {
 protected:
  void Start() {
    coordinator_.AcknowledgeAtOnce();
    AgentOptions options;
    options.identity.set_worker_id("host/cpu:0");
    options.identity.set_incarnation(5);
    options.session.coordinator = coordinator_.address();
    options.session.first_backoff = absl::Milliseconds(1);
    options.session.longest_backoff = absl::Milliseconds(20);
    options.make_trainer = [this](const v1::Assignment&) {
      return std::make_unique<FakeTrainer>(script_);
    };
    options.inspect = [](const v1::InspectData& request) -> absl::StatusOr<v1::DataInspection> {
      if (request.vocab() != 256) return absl::NotFoundError("no such file: a.txt");
      v1::DataInspection found;
      found.mutable_model()->set_layers(3);
      return found;
    };
    options.holdings = &holdings_;
    options.metrics = std::make_shared<prometheus::Registry>();
    options.abort_limit = abort_limit_;
    options.leave_limit = leave_limit_;
    options.flush_limit = absl::Milliseconds(200);
    agent_ = std::make_unique<Agent>(std::move(options));
    thread_ = std::thread([this] { exit_code_ = agent_->Run(); });
  }

  void TearDown() override {
    if (thread_.joinable()) Leave();
  }

  int Leave() {
    agent_->RequestStop("the test is over");
    return Join();
  }
  int Join() {
    thread_.join();
    return exit_code_;
  }

  void Assign(const std::string& job, int64_t epoch = 1) {
    ASSERT_TRUE(
        coordinator_.Await("hello", [](const Heard& heard) { return !heard.hellos.empty(); }));
    v1::SessionResponse message;
    message.mutable_assign()->set_job_id(job);
    message.mutable_assign()->set_epoch(epoch);
    message.mutable_assign()->set_rank(2);
    message.mutable_assign()->set_world(4);
    coordinator_.Send(std::move(message));
  }
  void Abort(const std::string& job, int64_t epoch = 1) {
    v1::SessionResponse message;
    message.mutable_abort()->set_job_id(job);
    message.mutable_abort()->set_epoch(epoch);
    message.mutable_abort()->set_reason("cancelled");
    coordinator_.Send(std::move(message));
  }
  // Waits for the n-th report and returns it.
  v1::RankReport AwaitReport(size_t n) {
    if (!coordinator_.Await("a report",
                            [n](const Heard& heard) { return heard.reports.size() >= n; })) {
      return {};
    }
    return coordinator_.heard().reports[n - 1].report();
  }

  FakeCoordinator coordinator_;
  Script script_;
  absl::Duration abort_limit_ = absl::Seconds(kPatienceSeconds);
  absl::Duration leave_limit_ = absl::Seconds(kPatienceSeconds);
  HoldingStore holdings_;
  std::unique_ptr<Agent> agent_;
  std::thread thread_;
  int exit_code_ = -1;
};

}  // namespace sherd
