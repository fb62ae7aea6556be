#include "coordinator/core/state.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sherd {
namespace {

constexpr size_t kLongestNameInId = 40;

std::string DescribeSeat(const std::optional<Seat>& seat) {
  if (!seat) return "none";
  return absl::StrCat(seat->job.value(), "/", seat->epoch.value(), "/", seat->rank);
}

std::string DescribeWorker(const WorkerState& worker) {
  return absl::StrCat(
      "worker ", worker.id.value(), " incarnation=", worker.incarnation.value(),
      " device=", worker.device, " host=", worker.host, " domain=", worker.shared_memory_domain,
      " address=", worker.data_address, " network=", worker.network_address,
      " fingerprint=", worker.numerics_fingerprint, " root=", worker.output_root,
      " alive=", worker.alive, " lost=", worker.lost_unix_ms, " seat=", DescribeSeat(worker.seat),
      " draining=", worker.draining, " (", worker.drain_reason, ") dismissed=", worker.dismissed,
      " retired=",
      absl::StrJoin(worker.retired, ",",
                    [](std::string* out, Incarnation past) { absl::StrAppend(out, past.value()); }),
      "\n");
}

std::string DescribeHolding(const v1::Holding& held) {
  return absl::StrCat(held.epoch(), "/", held.world(), "/", held.owner(), "/", held.step());
}

std::string DescribeWorkers(const std::vector<WorkerId>& workers) {
  return absl::StrJoin(workers, ",",
                       [](std::string* out, const WorkerId& id) { *out += id.value(); });
}

std::string DescribeRestore(const RestorePoint& restore) {
  std::string text =
      absl::StrCat("  restore step=", restore.step, " checkpoint=", restore.checkpoint);
  if (restore.version) {
    absl::StrAppend(&text, " version=", restore.version->epoch, "/", restore.version->world, "/",
                    restore.version->step);
  }
  for (const auto& [part, holders] : restore.parts) {
    absl::StrAppend(&text, " part ", part, ":");
    for (const PartHolder& holder : holders) {
      absl::StrAppend(&text, " ", holder.owner, "@", holder.worker.value(), "/",
                      holder.incarnation.value());
    }
  }
  return text + "\n";
}

std::string DescribeEpoch(const JobRecord& job) {
  std::string text = absl::StrCat(
      "  epoch ", job.epoch.value(), " saves=", job.save_and_stop, " progressed=", job.progressed,
      " announced=", job.announced, " paused=", job.paused, " aborted=", job.aborted,
      " asked=", job.holders_asked, " kind=", static_cast<int>(job.end_kind),
      " suspicion=", job.suspicion, " cause=", job.cause, " struck=", job.times.struck,
      " ended=", job.times.ended, " answered=", job.times.answered,
      " assigned=", job.times.assigned, " running=", job.times.running,
      " forming=", job.times.forming, "\n", DescribeRestore(job.restore));
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankState& state = job.ranks[rank];
    absl::StrAppend(&text, "  rank ", rank, " worker=", state.worker.value(),
                    " incarnation=", state.incarnation.value(),
                    " phase=", static_cast<int>(state.phase), " left=", state.left,
                    " holders=", DescribeWorkers(state.holders), " reason=", state.reason, "\n");
  }
  for (const CopyHolder& holder : job.holders) {
    absl::StrAppend(&text, "  holder ", holder.worker.value(), "/", holder.incarnation.value(),
                    " left=", holder.left, " source=", holder.source, " returned=", holder.returned,
                    "\n");
  }
  for (const Complaint& complaint : job.complaints) {
    absl::StrAppend(&text, "  rank ", complaint.rank, " lost ", complaint.peer, "\n");
  }
  return text;
}

std::string DescribePatience(const JobRecord& job) {
  const Patience& patience = job.patience;
  return absl::StrCat(
      " patience=", static_cast<int>(patience.what), "/", patience.since_unix_ms, "/",
      patience.delay_ms, "/", patience.silent_over, "/", patience.save_due, " silent=",
      absl::StrJoin(job.silent, ",",
                    [](std::string* out, const auto& entry) {
                      absl::StrAppend(out, entry.first.value(), "/", entry.second.value());
                    }),
      " past=", absl::StrJoin(job.past_causes, "|"));
}

std::string DescribeJob(const JobRecord& job) {
  std::string text = absl::StrCat(
      "job ", job.id.value(), " request=", job.request_id, " secret=", job.secret,
      " order=", job.order, " state=", job.state, " waiting=", static_cast<int>(job.waiting),
      " step=", job.step, " submitted=", job.submitted_unix_ms, " ended=", job.ended_unix_ms,
      " weights=", job.weights_path, " restored=", job.restored.value(),
      " starts=", absl::StrJoin(job.starts, ",", absl::PairFormatter(":")),
      " fruitless=", job.fruitless, " high=", job.high_step, " usual=", job.usual_world,
      " excluded=", DescribeWorkers({job.excluded.begin(), job.excluded.end()}),
      " told=", job.told_copies, " saves=", job.failed_saves, DescribePatience(job),
      " reason=", job.reason, " spec=", job.spec.SerializeAsString(), "\n", DescribeEpoch(job));
  if (job.checkpoint) {
    absl::StrAppend(&text, "  checkpoint ", job.checkpoint->step, " ", job.checkpoint->path, "\n");
  }
  for (const auto& [worker, answer] : job.answers) {
    absl::StrAppend(&text, "  answer of ", worker.value(), "/", answer.incarnation.value(), ":");
    for (const v1::Holding& held : answer.holdings) text += " " + DescribeHolding(held);
    text += "\n";
  }
  return text;
}

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool HoldsWorkers(v1::JobState state) {
  return state == v1::JOB_STATE_FORMING || state == v1::JOB_STATE_RUNNING;
}

bool IsUnderway(v1::JobState state) {
  return HoldsWorkers(state) || state == v1::JOB_STATE_RECOVERING;
}

bool IsAtWork(const JobRecord& job) {
  return IsUnderway(job.state) && !job.aborted &&
         std::any_of(job.ranks.begin(), job.ranks.end(),
                     [](const RankState& rank) { return !rank.left; });
}

bool AllLeft(const JobRecord& job) {
  return std::all_of(job.ranks.begin(), job.ranks.end(),
                     [](const RankState& rank) { return rank.left; }) &&
         std::all_of(job.holders.begin(), job.holders.end(),
                     [](const CopyHolder& holder) { return holder.left; });
}

bool IsNamed(const JobRecord& job, const WorkerState& worker) {
  const auto is_worker = [&](const auto& member) {
    return member.worker == worker.id && member.incarnation == worker.incarnation;
  };
  return std::any_of(job.ranks.begin(), job.ranks.end(), is_worker) ||
         std::any_of(job.holders.begin(), job.holders.end(), is_worker);
}

bool ShareMemory(const WorkerState& a, const WorkerState& b) {
  // Who names no domain shares memory with itself alone.
  return a.id == b.id ||
         (!a.shared_memory_domain.empty() && a.shared_memory_domain == b.shared_memory_domain);
}

bool Reaches(const WorkerState& from, const WorkerState& to) {
  return ShareMemory(from, to) || !to.network_address.empty();
}

bool IsAlive(const State& state, const WorkerId& id, Incarnation incarnation) {
  const WorkerState* worker = FindWorker(state, id);
  return worker != nullptr && worker->alive && worker->incarnation == incarnation;
}

const JobRecord* FindJob(const State& state, const JobId& id) {
  const auto found = state.jobs.find(id);
  return found == state.jobs.end() ? nullptr : &found->second;
}

const WorkerState* FindWorker(const State& state, const WorkerId& id) {
  const auto found = state.workers.find(id);
  return found == state.workers.end() ? nullptr : &found->second;
}

JobId NextJobId(const State& state, const std::string& name) {
  std::string readable;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) && byte < 128) {
      readable += static_cast<char>(std::tolower(byte));
    } else if (!readable.empty() && readable.back() != '-') {
      readable += '-';
    }
    if (readable.size() == kLongestNameInId) break;
  }
  while (!readable.empty() && readable.back() == '-') readable.pop_back();
  if (readable.empty()) readable = "job";
  return JobId(absl::StrCat(readable, "-", state.submissions + 1));
}

std::string Describe(const State& state) {
  std::string text = absl::StrCat(
      "sequence=", state.sequence, " submissions=", state.submissions, "\nqueue=",
      absl::StrJoin(state.queue, ",",
                    [](std::string* out, const JobId& id) { absl::StrAppend(out, id.value()); }),
      "\n");
  for (const auto& [request, job] : state.jobs_by_request) {
    absl::StrAppend(&text, "request ", request, " -> ", job.value(), "\n");
  }
  for (const auto& [id, worker] : state.workers) text += DescribeWorker(worker);
  for (const auto& [id, job] : state.jobs) text += DescribeJob(job);
  return text;
}

}  // namespace sherd
