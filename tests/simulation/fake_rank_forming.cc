#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/fake_rank.h"
#include "tests/simulation/worker_process.h"

// How a rank comes to its first step.

namespace sherd::simulation {
namespace {

constexpr absl::Duration kFormationPatience = absl::Seconds(10);
// Of what another process does not do because it is frozen.
constexpr absl::Duration kRetry = absl::Milliseconds(50);

}  // namespace

void FakeRank::Join() {
  Cluster::World& all = world();
  all.joined |= uint64_t{1} << assignment_.rank();
  After(kFormationPatience, &FakeRank::GiveUpForming);
  if (all.joined + 1 != uint64_t{1} << assignment_.world()) return;
  for (const auto& [rank, other] : all.ranks) {
    other->After(cluster_.chance.Milliseconds(0, 5), &FakeRank::Form);
  }
}

void FakeRank::GiveUpForming() {
  if (!formed_) Fail(absl::DeadlineExceededError("the group did not form in time"));
}

void FakeRank::Form() {
  formed_ = true;
  // Whoever has ended meanwhile has closed its links.
  for (int rank = 0; rank < assignment_.world(); ++rank) {
    if (!world().ranks.contains(rank)) return PeerLost(rank);
  }
  if (assignment_.has_trial()) {
    return After(cluster_.chance.Milliseconds(0, 5), &FakeRank::BeginMeasuring);
  }
  segment_ = std::make_shared<Segment>();
  segment_->key = {assignment_.job_id(), assignment_.epoch(), assignment_.world(),
                   assignment_.rank()};
  segment_->secret = assignment_.secret();
  if (!process_.store().Keep(segment_)) {
    return Fail(absl::FailedPreconditionError("this epoch has ended here"));
  }
  After(cluster_.chance.Milliseconds(0, 5), &FakeRank::Restore);
}

void FakeRank::BeginMeasuring() {
  v1::RankReport report = Stamp();
  report.mutable_ready();
  process_.Report(std::move(report));
  After(cluster_.chance.Milliseconds(1, 40), &FakeRank::EndMeasuring);
}

void FakeRank::EndMeasuring() {
  finishing_ = true;
  TrainerEnded ended;
  v1::TrialReport& trial = ended.trial.emplace();
  trial.set_number(assignment_.trial().number());
  if (assignment_.trial().steps() > 0) {
    trial.set_step_seconds(1e-3 * static_cast<double>(cluster_.chance.Between(1, 9)));
  } else {
    trial.set_matmul_flops_per_second(1e9 * static_cast<double>(cluster_.chance.Between(20, 90)));
    trial.set_copy_bytes_per_second(5e9);
  }
  End(std::move(ended));
}

void FakeRank::Meet(const WorkerProcess& other, const std::string& address) {
  const bool far = other.host() != process_.host();
  if (address == (far ? other.network_address() : other.address())) return;
  cluster_.referee.Accuse(absl::StrCat(process_.name(), " cannot come to ", address));
}

bool FakeRank::CopyFrom(const v1::RestoreSource& source) {
  const v1::RestorePlan& plan = assignment_.restore();
  const SegmentKey key{assignment_.job_id(), plan.epoch(), plan.world(), source.owner()};
  std::shared_ptr<Segment> held = process_.store().Find(key);
  // Its own memory may be of the same shard, and lack the step that a copy of it has.
  if (held == nullptr || held->Find(plan.step()) < 0) {
    const auto holder = cluster_.processes.find(source.address());
    const bool answers = holder != cluster_.processes.end() && holder->second->alive();
    if (answers) {
      Meet(*holder->second, source.address());
      held = holder->second->store().Find(key);
      const bool opens = held == nullptr || held->secret == plan.secret();
      if (!opens) cluster_.referee.Accuse("a restore plan has a secret that opens nothing");
    }
  }
  const int slot = held == nullptr ? -1 : held->Find(plan.step());
  if (slot < 0) return false;
  reading_.push_back({held, slot});
  lineage_ = held->slots[slot].lineage;
  return true;
}

void FakeRank::Restore() {
  const v1::RestorePlan& plan = assignment_.restore();
  if (!plan.checkpoint().empty()) {
    lineage_ = cluster_.referee.Saved(assignment_.job_id(), plan.checkpoint());
  }
  for (const v1::RestoreSource& source : plan.sources()) {
    const auto holder = cluster_.processes.find(source.address());
    const bool frozen = holder != cluster_.processes.end() && holder->second->frozen();
    if (frozen && holder->second != &process_) return After(kRetry, &FakeRank::Restore);
  }
  reading_.clear();
  for (const v1::RestoreSource& source : plan.sources()) {
    if (!CopyFrom(source)) {
      return Fail(absl::UnavailableError(absl::StrCat("a part of step ", plan.step(), " of epoch ",
                                                      plan.epoch(), " cannot be had")));
    }
  }
  if (plan.checkpoint().empty() && plan.step() > 0 && reading_.empty()) {
    return Fail(absl::UnavailableError("the restore plan names nobody"));
  }
  After(cluster_.chance.Milliseconds(1, 10), &FakeRank::EndRestore);
}

void FakeRank::EndRestore() {
  for (const auto& [segment, slot] : std::exchange(reading_, {})) {
    const Segment::Slot& read = segment->slots[slot];
    if (read.lineage == lineage_ && !read.torn) continue;
    cluster_.referee.Accuse(absl::StrCat("rank ", assignment_.rank(), " of epoch ",
                                         assignment_.epoch(), " of ", assignment_.job_id(),
                                         " restored memory that was being written"));
  }
  segment_->slots[0].lineage = lineage_;
  if (!lineage_.empty()) {
    cluster_.referee.Stores(assignment_.job_id(), assignment_.epoch(), lineage_);
    if (!segment_->Complete(0)) return Fail(absl::AbortedError("the epoch has ended"));
  }
  committed_ = static_cast<int64_t>(lineage_.size());
  HandOver();
}

void FakeRank::HandOver() {
  for (; handed_over_ < static_cast<size_t>(assignment_.holders_size()); ++handed_over_) {
    const auto found = cluster_.processes.find(assignment_.holders(static_cast<int>(handed_over_)));
    WorkerProcess* holder = found == cluster_.processes.end() ? nullptr : found->second;
    if (holder != nullptr && holder->frozen()) return After(kRetry, &FakeRank::HandOver);
    std::shared_ptr<Segment> held = segment_;
    if (holder != nullptr) {
      Meet(*holder, assignment_.holders(static_cast<int>(handed_over_)));
    }
    if (holder != nullptr && holder->host() != process_.host()) {
      if (cluster_.cut.contains({process_.name(), holder->name()})) {
        return HolderLost(holder->network_address());
      }
      // It may hear of it later than the ranks do.
      if (holder->alive() && !holder->Expects(segment_->key, assignment_.secret())) {
        return After(kRetry, &FakeRank::HandOver);
      }
      held = std::make_shared<Segment>(*segment_);
      held->fenced = false;
    }
    if (holder == nullptr || !holder->alive() || !holder->store().Keep(held)) {
      return HolderLost(assignment_.holders(static_cast<int>(handed_over_)));
    }
    if (held != segment_) copies_.push_back({holder, held, true});
  }
  After(cluster_.chance.Milliseconds(0, 3), &FakeRank::BeReady);
}

void FakeRank::BeReady() {
  cluster_.referee.IsReady(assignment_.job_id(), assignment_.epoch(), assignment_.rank(), lineage_);
  v1::RankReport report = Stamp();
  report.mutable_ready()->set_copies(assignment_.holders_size());
  report.mutable_ready()->set_step(committed_);
  process_.Report(std::move(report));
  begins_ = true;
  Enter();
}

}  // namespace sherd::simulation
