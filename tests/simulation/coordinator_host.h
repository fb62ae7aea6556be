#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/runtime/controller.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/memory_log.h"
#include "tests/simulation/stream.h"

namespace sherd::simulation {

// The real coordinator but its edges, whose lives end and begin on one log.
class CoordinatorHost {
 public:
  CoordinatorHost(Cluster& cluster, CoordinatorMetrics& metrics);

  bool up() const { return controller_ != nullptr; }
  // Changes whenever a life begins or ends.
  int64_t life() const { return life_; }
  const State& state() const { return controller_->state(); }

  void Start();
  // What the open turn had not stored is lost; all streams break.
  void Crash();
  // Something is heard; the turn ends at once, or a little later with what comes meanwhile. Nothing
  // happens while it is down.
  void Hear(const std::function<void(Controller&)>& what);
  void AddStream(std::shared_ptr<Stream> stream) { streams_.push_back(std::move(stream)); }
  // Replays the log beside the running coordinator: both must be in one state.
  void CheckReplay();

 private:
  void EndTurn();
  void WakeAtDeadline();

  Cluster& cluster_;
  CoordinatorMetrics& metrics_;
  MemoryLog log_;
  std::unique_ptr<Controller> controller_;
  int64_t life_ = 0;
  bool open_ = false;
  absl::Time wake_ = absl::InfiniteFuture();
  std::vector<std::shared_ptr<Stream>> streams_;
};

}  // namespace sherd::simulation
