#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/runtime/worker_link.h"
#include "sherd/v1/worker.pb.h"
#include "tests/simulation/cluster.h"

namespace sherd::simulation {

// One session stream between a worker's process and a life of the coordinator: messages keep their
// order in each direction, and are late, or lost behind a break.
class Stream final : public WorkerLink, public std::enable_shared_from_this<Stream> {
 public:
  Stream(Cluster& cluster, WorkerProcess& process) : cluster_(cluster), process_(process) {}

  // ---- The worker's end.
  void Open(const v1::Hello& hello);
  void SendUp(const v1::SessionRequest& request);
  // The process has ended, or leaves: what was sent before arrives, or a part of it.
  void Abandon();

  // ---- The coordinator's end.
  void Send(v1::SessionResponse message) override;
  void Close(const absl::Status& status) override;

  // Breaks on the way: both ends lose what is under way, and hear of it at different times.
  void Break();

 private:
  enum class Direction { kUp, kDown };
  // When something that is sent now arrives.
  absl::Time Arrival(Direction direction);
  bool Passes(Direction direction) const;
  void DisconnectCoordinator(absl::Duration delay);
  void EndAtWorker(absl::Duration delay, const absl::Status& status);

  Cluster& cluster_;
  WorkerProcess& process_;
  int64_t life_ = 0;  // of the coordinator
  bool closed_ = false;
  absl::Time last_up_ = absl::InfinitePast();
  absl::Time last_down_ = absl::InfinitePast();
  absl::Time cut_up_ = absl::InfiniteFuture();
  absl::Time cut_down_ = absl::InfiniteFuture();
};

}  // namespace sherd::simulation
