#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/fake_rank.h"
#include "tests/simulation/holdings.h"
#include "tests/simulation/stream.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/report_buffer.h"

namespace sherd::simulation {

// One life of a worker: the real agent's state machine and the real numbering of reports, around a
// pretended session, trainer and memory.
class WorkerProcess {
 public:
  // `ended` is told how it ended: by a signal, or its exit code.
  using OnEnd = std::function<void(int signal, int code)>;

  WorkerProcess(Cluster& cluster, std::string name, std::string host, uint64_t incarnation,
                OnEnd ended);
  WorkerProcess(const WorkerProcess&) = delete;

  const std::string& name() const { return name_; }
  const std::string& host() const { return host_; }
  // Where links come; of other hosts' processes to the latter.
  const std::string& address() const { return address_; }
  const std::string& network_address() const { return network_address_; }
  uint64_t incarnation() const { return incarnation_; }
  bool alive() const { return alive_; }
  bool frozen() const { return frozen_; }
  Store& store() { return store_; }
  FakeRank* rank() { return rank_.get(); }
  // It was told to store this shard of a rank on another host, who presents `secret`.
  bool Expects(const SegmentKey& key, const std::string& secret) const {
    const auto found = expected_.find(key);
    return found != expected_.end() && found->second == secret;
  }

  // Does something as this process: now; once it thaws; never when it has ended.
  void Run(std::function<void()> what);
  void After(absl::Duration delay, std::function<void()> what);

  // ---- What befalls it.
  void Start();
  void Kill(int signal);
  void Freeze();
  void Thaw();
  void BreakStream();
  // SIGTERM.
  void Leave();

  // ---- From the stream.
  void Hear(const Stream& stream, const v1::SessionResponse& message);
  void StreamEnded(const Stream& stream, const absl::Status& status);

  // ---- From the rank.
  void Report(v1::RankReport report);
  void RankEnded(TrainerEnded ended);

 private:
  void Connect();
  v1::Hello MakeHello() const;
  void OnWelcome(const v1::SessionResponse& message);
  void BeatHeart(const Stream* stream);
  void Say(v1::SessionRequest numbered);
  void Answer(const v1::SessionRequest& request);
  void Pump();
  void Expect(const v1::Hold& hold);
  void Handle(const AgentEvent& event);
  void Perform(const AgentAction& action);
  void BeginExit(int code);
  void ExitWhenFlushed();
  void End(int signal, int code);

  Cluster& cluster_;
  const std::string name_;
  const std::string host_;
  const std::string address_;
  const std::string network_address_;
  const uint64_t incarnation_;
  const OnEnd ended_;
  bool alive_ = true;
  bool frozen_ = false;
  std::vector<std::function<void()>> deferred_;
  AgentState state_;
  ReportBuffer buffer_{1 << 20};
  Store store_;
  std::map<SegmentKey, std::string> expected_;
  std::unique_ptr<FakeRank> rank_;
  std::vector<std::unique_ptr<FakeRank>> past_ranks_;
  std::shared_ptr<Stream> stream_;
  bool welcomed_ = false;
  bool refused_ = false;
  absl::Duration heartbeat_ = absl::Milliseconds(300);
  absl::Duration backoff_ = absl::Milliseconds(50);
  std::optional<int> exit_code_;
};

}  // namespace sherd::simulation
