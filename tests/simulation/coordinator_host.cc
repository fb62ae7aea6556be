#include "tests/simulation/coordinator_host.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/core/snapshot.h"

namespace sherd::simulation {
namespace {

ControllerOptions CoordinatorOptions() {
  ControllerOptions options;
  // Shorter than the product's, so that schedules are.
  options.formation_time = absl::Seconds(20);
  // Few, so that lives begin on snapshots.
  options.compact_after = 16;
  return options;
}

}  // namespace

CoordinatorHost::CoordinatorHost(Cluster& cluster, CoordinatorMetrics& metrics)
    : cluster_(cluster),
      metrics_(metrics),
      log_([&cluster](const LogBatch& batch) { cluster.referee.SeeBatch(batch); }) {}

void CoordinatorHost::Start() {
  ++life_;
  cluster_.trace.Say("the coordinator starts");
  controller_ = std::make_unique<Controller>(
      CoordinatorOptions(), cluster_.queue, log_,
      [life = life_](int bytes) { return std::string(bytes, static_cast<char>('a' + life % 26)); },
      metrics_);
  if (const absl::Status status = controller_->Recover(); !status.ok()) {
    cluster_.referee.Accuse(std::string(status.message()));
  }
  controller_->BeginTurn();
  EndTurn();
}

void CoordinatorHost::Crash() {
  if (!up()) return;
  cluster_.trace.Say("the coordinator ends", open_ ? ", in the middle of a turn" : "");
  if (!open_) CheckReplay();
  ++life_;
  controller_.reset();
  open_ = false;
  wake_ = absl::InfiniteFuture();
  if (cluster_.options.planted == Planted::kLostBatch) log_.LoseLastBatch();
  for (const std::shared_ptr<Stream>& stream : std::exchange(streams_, {})) stream->Break();
}

void CoordinatorHost::Hear(const std::function<void(Controller&)>& what) {
  if (!up()) return;
  if (!open_) controller_->BeginTurn();
  what(*controller_);
  if (open_) return;
  if (!cluster_.chance.OneIn(4)) return EndTurn();
  open_ = true;
  // Sometimes it does not get on for seconds.
  const bool stalls = cluster_.chance.OneIn(50);
  cluster_.queue.After(cluster_.chance.Milliseconds(0, stalls ? 5000 : 3), [this, life = life_] {
    if (life == life_ && open_) EndTurn();
  });
}

void CoordinatorHost::EndTurn() {
  open_ = false;
  if (const absl::Status status = controller_->EndTurn(); !status.ok()) {
    cluster_.referee.Accuse(std::string(status.message()));
  }
  cluster_.referee.SeeState(state());
  WakeAtDeadline();
}

void CoordinatorHost::WakeAtDeadline() {
  // As the event loop does, to the millisecond.
  const absl::Time next =
      std::max(controller_->NextDeadline(), cluster_.queue.Now() + absl::Milliseconds(1));
  if (next >= wake_ && wake_ > cluster_.queue.Now()) return;
  wake_ = next;
  cluster_.queue.At(next, [this, life = life_, next] {
    if (life != life_ || wake_ != next || !up()) return;
    wake_ = absl::InfiniteFuture();
    if (!open_) controller_->BeginTurn();
    EndTurn();
  });
}

void CoordinatorHost::CheckReplay() {
  const absl::StatusOr<std::optional<v1::StoredState>> snapshot = log_.ReadSnapshot();
  absl::StatusOr<State> replayed = State();
  if (snapshot.ok() && *snapshot) replayed = ReadState(**snapshot);
  if (!replayed.ok()) return cluster_.referee.Accuse(std::string(replayed.status().message()));
  const absl::Status status = log_.Replay(
      replayed->sequence, [&](const v1::DurableEvent& event) { Apply(event, *replayed); });
  if (!status.ok()) return cluster_.referee.Accuse(std::string(status.message()));
  if (Describe(*replayed) == Describe(state())) return;
  cluster_.referee.Accuse("the log's replay is another state than the coordinator's");
}

}  // namespace sherd::simulation
