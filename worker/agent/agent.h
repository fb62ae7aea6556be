#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady_await.h"
#include "prometheus/registry.h"
#include "sherd/v1/worker.pb.h"
#include "worker/agent/agent_metrics.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/inspector.h"
#include "worker/agent/session.h"
#include "worker/holdings/holding_store.h"
#include "worker/train/trainer.h"

namespace sherd {

struct AgentOptions {
  // Who the worker is; without a job.
  v1::Hello identity;
  SessionOptions session;
  std::function<std::unique_ptr<Trainer>(const v1::Assignment&)> make_trainer;
  // Where its trainers store versions and others' are kept. Outlives the agent.
  HoldingStore* holdings = nullptr;
  // Called on a thread of its own.
  Inspector::Look inspect;
  std::shared_ptr<prometheus::Registry> metrics;
  // Hears whether there is a session. Called from the session's thread; must not block.
  std::function<void(bool)> on_registered = [](bool) {};
  // A trainer ends within 500 ms of its abort; one that does not within this is beyond help.
  absl::Duration abort_limit = absl::Seconds(10);
  // A worker that is told to leave goes on until the coordinator lets it go, for this long.
  absl::Duration leave_limit = absl::Seconds(20);
  // For the last reports before the process ends.
  absl::Duration flush_limit = absl::Seconds(2);
};

// A worker's life: carries what the session hears to the state machine and what that decides to the
// trainer and the session. One trainer exists at a time, on a thread of its own that ends with it.
class Agent final : private SessionHandler {
 public:
  explicit Agent(AgentOptions options);
  ~Agent() override;

  // Blocks until the worker has to leave; the process's exit code. kExitStuck means that a trainer
  // still runs: destroying the agent would wait for it. Call once.
  int Run();
  // From any thread: aborts what runs, then Run returns kExitAsked.
  void RequestStop(absl::string_view reason);
  // From any thread: the coordinator is told, moves the worker's rank and what it holds elsewhere,
  // and then lets it go. As RequestStop when there is no coordinator and no work.
  void RequestLeave(absl::string_view reason);

 private:
  class RankObserver;

  // SessionHandler
  v1::Hello MakeHello() override;
  void OnConnected() override;
  void OnDisconnected() override;
  void OnAssign(v1::Assignment assignment) override;
  void OnAbort(v1::Abort abort) override;
  void OnInspect(v1::InspectData request) override;
  void OnShutdown(v1::Shutdown shutdown) override;
  void OnReportHoldings(v1::ReportHoldings request) override;
  void OnRetain(v1::Retain retain) override;
  void OnPause(v1::Pause pause) override;
  void OnLocate(v1::LocateRank request) override;
  void OnHold(v1::Hold hold) override;
  void OnEnded(absl::Status why) override;

  void Post(AgentEvent event);
  AgentEvent NextEvent();
  void Perform(StartTrainer& action);
  void Perform(AbortTrainer& action);
  void Perform(PauseTrainer& action);
  void Perform(TellPosition& action);
  void Perform(Report& action);
  void Perform(ExitProcess& action);
  // Joins and destroys the trainer that has ended.
  void ReapTrainer();
  void ShowState();

  const AgentOptions options_;
  AgentMetrics metrics_;

  // Of the thread in Run alone.
  AgentState state_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<RankObserver> observer_;
  std::thread trainer_thread_;
  absl::Duration abort_deadline_ = absl::InfiniteDuration();  // in monotonic time
  std::optional<int> exit_code_;

  absl::Mutex mutex_;
  SteadyAwait await_;
  std::deque<AgentEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::optional<RankId> rank_ ABSL_GUARDED_BY(mutex_);  // state_'s, for Hello
  // Why the worker is leaving, and until when it may take; in monotonic time.
  std::string leaving_ ABSL_GUARDED_BY(mutex_);
  absl::Duration leave_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();

  // Their threads call into what is above.
  Session session_;
  Inspector inspector_;
};

}  // namespace sherd
