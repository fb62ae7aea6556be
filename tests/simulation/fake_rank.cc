#include "tests/simulation/fake_rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/holdings.h"
#include "tests/simulation/worker_process.h"

namespace sherd::simulation {
namespace {

// One of so many steps is saved.
constexpr int64_t kStepsOfCheckpoint = 8;

// Exchanges by number, in their order: the one before anything is trained; those after step s that
// no update follows, once the step is stored and once the weights are written; and that before the
// update of step s + 1.
constexpr int64_t kFirstExchange = -1;
int64_t SettlingExchange(int64_t step) { return 3 * step; }
int64_t WritingExchange(int64_t step) { return 3 * step + 1; }
int64_t UpdateExchange(int64_t step) { return 3 * step + 2; }

}  // namespace

FakeRank::FakeRank(Cluster& cluster, WorkerProcess& process, const v1::Assignment& assignment)
    : cluster_(cluster), process_(process), assignment_(assignment) {}

Cluster::World& FakeRank::world() {
  return cluster_.worlds[{assignment_.job_id(), assignment_.epoch()}];
}

void FakeRank::After(absl::Duration delay, void (FakeRank::*next)()) {
  process_.After(delay, [this, next] {
    if (running_ && !wedged_) (this->*next)();
  });
}

v1::RankReport FakeRank::Stamp() const {
  v1::RankReport report;
  report.set_job_id(assignment_.job_id());
  report.set_epoch(assignment_.epoch());
  report.set_rank(assignment_.rank());
  return report;
}

void FakeRank::Start() {
  cluster_.trace.Say(process_.name(), " begins as rank ", assignment_.rank(), " of epoch ",
                     assignment_.epoch(), " of ", assignment_.job_id());
  cluster_.referee.Began(assignment_.job_id(), assignment_.epoch(), assignment_.rank(),
                         process_.incarnation());
  world().ranks[assignment_.rank()] = this;
  After(cluster_.chance.Milliseconds(0, 10), &FakeRank::Join);
}

void FakeRank::Compute() { After(cluster_.chance.Milliseconds(1, 15), &FakeRank::Enter); }

void FakeRank::Enter() {
  const bool early = cluster_.options.planted == Planted::kEarlyExchange;
  waits_for_store_ = !stored_ && !early;
  if (waits_for_store_) return;
  const auto step = static_cast<int64_t>(lineage_.size());
  Cluster::World::Exchange& exchange = world().exchanges[begins_    ? kFirstExchange
                                                         : writes_  ? WritingExchange(step)
                                                         : settles_ ? SettlingExchange(step)
                                                                    : UpdateExchange(step)];
  exchange.entered |= uint64_t{1} << assignment_.rank();
  exchange.pause |= pause_;
  if (exchange.entered + 1 != uint64_t{1} << assignment_.world()) return;
  // What was sent arrives also from a rank that has ended since.
  for (const auto& [rank, other] : world().ranks) {
    other->After(cluster_.chance.Milliseconds(0, 4), &FakeRank::ComeBack);
  }
}

void FakeRank::ComeBack() {
  if (std::exchange(begins_, false)) return Begin();
  Commit();
  const auto step = static_cast<int64_t>(lineage_.size());
  if (writes_ || (settles_ && pausing_)) {
    finishing_ = true;
    if (assignment_.save_and_stop() && leads()) TellCheckpoint();
    return After(cluster_.chance.Milliseconds(0, 5), &FakeRank::Finish);
  }
  writes_ = settles_;
  if (writes_) return After(cluster_.chance.Milliseconds(0, 10), &FakeRank::Enter);
  const int64_t last = assignment_.spec().train().steps();
  pausing_ = world().exchanges[UpdateExchange(step)].pause && step + 1 < last;
  Update();
}

void FakeRank::Begin() {
  // What all ranks have restored is committed.
  cluster_.referee.Commits(assignment_.job_id(), assignment_.epoch(), lineage_);
  if (assignment_.save_and_stop()) {
    settles_ = pausing_ = true;
    return After(cluster_.chance.Milliseconds(1, 20), &FakeRank::Enter);
  }
  if (leads()) {
    for (int64_t step = assignment_.reported_step() + 1; step <= committed_; ++step) SendStep(step);
  }
  // Weights are written by all together.
  settles_ = committed_ == assignment_.spec().train().steps();
  Compute();
}

void FakeRank::Commit() {
  if (!std::exchange(uncommitted_, false)) return;
  committed_ = static_cast<int64_t>(lineage_.size());
  cluster_.referee.Commits(assignment_.job_id(), assignment_.epoch(), lineage_);
  if (!leads()) return;
  SendStep(committed_);
  if (cluster_.chance.OneIn(kStepsOfCheckpoint)) After(cluster_.Delay(), &FakeRank::TellCheckpoint);
}

void FakeRank::TellCheckpoint() {
  const Lineage saved = lineage_.substr(0, static_cast<size_t>(committed_));
  const std::string path = absl::StrCat("epoch-", assignment_.epoch(), "-step-", saved.size());
  cluster_.referee.Saves(assignment_.job_id(), path, saved);
  v1::RankReport report = Stamp();
  report.mutable_checkpoint()->set_step(static_cast<int64_t>(saved.size()));
  report.mutable_checkpoint()->set_epoch(assignment_.epoch());
  report.mutable_checkpoint()->set_path(path);
  process_.Report(std::move(report));
}

void FakeRank::SendStep(int64_t step) {
  v1::RankReport report = Stamp();
  report.mutable_step()->set_step(step);
  report.mutable_step()->set_epoch(assignment_.epoch());
  report.mutable_step()->set_loss(1);
  report.mutable_step()->set_step_ms(10);
  process_.Report(std::move(report));
}

void FakeRank::Update() {
  const int slot = NextSlot(newest_slot_);
  if (!segment_->Invalidate(slot)) return Fail(absl::AbortedError("the epoch has ended"));
  segment_->slots[slot].torn = true;
  After(cluster_.chance.Milliseconds(0, 3), &FakeRank::EndUpdate);
}

void FakeRank::EndUpdate() {
  newest_slot_ = NextSlot(newest_slot_);
  lineage_.push_back(static_cast<char>(assignment_.epoch()));
  cluster_.referee.Stores(assignment_.job_id(), assignment_.epoch(), lineage_);
  segment_->slots[newest_slot_].lineage = lineage_;
  segment_->slots[newest_slot_].torn = false;
  uncommitted_ = true;
  stored_ = false;
  for (Copy& copy : copies_) copy.stored = false;
  After(cluster_.chance.Milliseconds(0, 5), &FakeRank::Stored);
  for (size_t copy = 0; copy < copies_.size(); ++copy) StoreRemote(copy);
  const auto last = assignment_.spec().train().steps();
  settles_ = pausing_ || static_cast<int64_t>(lineage_.size()) == last;
  if (settles_) return After(absl::ZeroDuration(), &FakeRank::Enter);
  Compute();
}

void FakeRank::StoreRemote(size_t copy) {
  cluster_.queue.After(cluster_.Delay(), [this, copy, lineage = lineage_, slot = newest_slot_] {
    WorkerProcess& holder = *copies_[copy].holder;
    holder.Run([this, copy, lineage, slot, &holder] {
      Segment& segment = *copies_[copy].segment;
      if (!segment.Invalidate(slot)) return;
      segment.slots[slot].lineage = lineage;
      segment.slots[slot].torn = true;
      holder.After(cluster_.chance.Milliseconds(0, 3), [this, copy, slot] {
        Segment& written = *copies_[copy].segment;
        written.slots[slot].torn = false;
        if (!written.Complete(slot)) return;
        process_.After(cluster_.Delay(), [this, copy] {
          copies_[copy].stored = true;
          if (running_ && !wedged_) Stored();
        });
      });
    });
  });
}

void FakeRank::Stored() {
  Segment::Slot& slot = segment_->slots[newest_slot_];
  if (!slot.whole) {
    if (!segment_->Complete(newest_slot_)) return Fail(absl::AbortedError("the epoch has ended"));
  }
  stored_ =
      std::all_of(copies_.begin(), copies_.end(), [](const Copy& copy) { return copy.stored; });
  if (stored_ && std::exchange(waits_for_store_, false)) Enter();
}

void FakeRank::Finish() {
  finishing_ = true;
  TrainerEnded ended;
  ended.paused = pausing_;
  ended.step = committed_;
  if (!pausing_ && leads()) ended.weights_path = "weights";
  End(std::move(ended));
}

void FakeRank::Abort() {
  aborted_ = true;
  if (deaf_) return;
  wedged_ = false;
  process_.After(cluster_.chance.Milliseconds(0, 20), [this] {
    if (running_) Fail(absl::AbortedError("aborted"));
  });
}

void FakeRank::Wedge(bool for_ever) {
  // Behind the last step nobody watches: to write weights may take any time.
  if (settles_ || finishing_) return;
  cluster_.trace.Say("rank ", assignment_.rank(), " on ", process_.name(), " hangs",
                     for_ever ? ", whatever it is told" : "");
  wedged_ = true;
  deaf_ = for_ever;
}

void FakeRank::LoseLink() {
  if (!formed_ || world().ranks.size() < 2 || !running_) return;
  const auto& ranks = world().ranks;
  auto peer = ranks.upper_bound(assignment_.rank());
  if (peer == ranks.end()) peer = ranks.begin();
  FakeRank* const other = peer->second;
  cluster_.trace.Say(process_.name(), " and ", other->process_.name(), " lose their link");
  other->process_.After(cluster_.Delay(),
                        [other, rank = assignment_.rank()] { other->PeerLost(rank); });
  process_.Run([this, rank = peer->first] { PeerLost(rank); });
}

void FakeRank::LoseHolder() {
  if (!running_ || copies_.empty()) return;
  const WorkerProcess& holder = *copies_.front().holder;
  cluster_.trace.Say(process_.name(), " and its holder ", holder.name(), " lose their link");
  cluster_.cut.insert({process_.name(), holder.name()});
  process_.Run([this, address = holder.network_address()] {
    if (running_ && !wedged_ && !finishing_) HolderLost(address);
  });
}

void FakeRank::HolderLost(const std::string& address) {
  Fail(absl::UnavailableError(absl::StrCat("the process at ", address, " is not reached")),
       /*lost_peer=*/-1, address);
}

v1::RankPosition FakeRank::Position() const {
  v1::RankPosition position;
  position.set_job_id(assignment_.job_id());
  position.set_epoch(assignment_.epoch());
  position.set_rank(assignment_.rank());
  position.set_step(static_cast<int64_t>(lineage_.size()));
  position.set_operation(wedged_ ? "forward" : "exchange");
  position.set_waiting(!wedged_);
  return position;
}

void FakeRank::PeerLost(int rank) {
  if (!running_ || wedged_ || finishing_) return;
  Fail(absl::UnavailableError(absl::StrCat("the link to rank ", rank, " is closed")), rank);
}

void FakeRank::CloseLinks() {
  running_ = false;
  cluster_.referee.Ended(assignment_.job_id(), assignment_.epoch(), assignment_.rank(),
                         process_.incarnation());
  Cluster::World& all = world();
  all.ranks.erase(assignment_.rank());
  if (finishing_) return;
  for (const auto& [rank, other] : all.ranks) {
    if (!other->formed_) continue;
    other->process_.After(cluster_.Delay(),
                          [other = other, lost = assignment_.rank()] { other->PeerLost(lost); });
  }
}

void FakeRank::Vanish() {
  if (!running_) return;
  finishing_ = false;
  CloseLinks();
}

void FakeRank::Fail(absl::Status status, int lost_peer, const std::string& lost_holder) {
  finishing_ = false;
  TrainerEnded ended;
  ended.status = std::move(status);
  ended.step = committed_;
  ended.lost_peer = lost_peer;
  ended.lost_holder = lost_holder;
  End(std::move(ended));
}

void FakeRank::End(TrainerEnded ended) {
  if (!running_) return;
  cluster_.trace.Say("rank ", assignment_.rank(), " of epoch ", assignment_.epoch(), " on ",
                     process_.name(), " ends after step ", committed_, ": ",
                     ended.status.ok() ? (ended.paused ? "paused" : "finished")
                                       : std::string(ended.status.message()));
  CloseLinks();
  process_.RankEnded(std::move(ended));
}

}  // namespace sherd::simulation
