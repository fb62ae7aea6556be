#include "coordinator/core/state.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "coordinator/core/snapshot.h"
#include "google/protobuf/text_format.h"

namespace sherd {
namespace {

constexpr size_t kLongestNameInId = 40;

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

std::string MemoryDomainOf(const WorkerState& worker) {
  return worker.shared_memory_domain.empty() ? absl::StrCat("of ", worker.id.value())
                                             : worker.shared_memory_domain;
}

bool ShareMemory(const WorkerState& a, const WorkerState& b) {
  // Who names no domain shares memory with itself alone.
  return a.id == b.id ||
         (!a.shared_memory_domain.empty() && a.shared_memory_domain == b.shared_memory_domain);
}

bool Reaches(const WorkerState& from, const WorkerState& to) {
  return ShareMemory(from, to) || !to.network_address.empty();
}

const std::string& AddressFor(const WorkerState& from, const WorkerState& to) {
  return ShareMemory(from, to) ? to.data_address : to.network_address;
}

bool IsBroken(const JobRecord& job, const WorkerId& a, const WorkerId& b) {
  return job.broken.contains({a, b}) || job.broken.contains({b, a});
}

bool IsUndecided(const JobRecord& job) {
  return job.trials.phase == Trials::Phase::kProbe || job.trials.phase == Trials::Phase::kTrial;
}

Epoch FirstEpochOf(const JobRecord& job) { return Epoch(job.trials.last_epoch.value() + 1); }

const v1::ParallelSpec* LayoutOf(const JobRecord& job, int64_t epoch) {
  if (job.trials.phase == Trials::Phase::kNone) return &job.spec.parallel();
  const auto found = job.trials.layouts.find(epoch);
  return found == job.trials.layouts.end() ? nullptr : &found->second;
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
  std::string text;
  google::protobuf::TextFormat::PrintToString(WriteState(state), &text);
  return text;
}

}  // namespace sherd
