#include "coordinator/core/state.h"

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
      " retired=",
      absl::StrJoin(worker.retired, ",",
                    [](std::string* out, Incarnation past) { absl::StrAppend(out, past.value()); }),
      "\n");
}

std::string DescribeJob(const JobRecord& job) {
  std::string text = absl::StrCat(
      "job ", job.id.value(), " request=", job.request_id, " secret=", job.secret,
      " order=", job.order, " state=", job.state, " waiting=", static_cast<int>(job.waiting),
      " epoch=", job.epoch.value(), " aborted=", job.aborted, " suspicion=", job.suspicion,
      " step=", job.step, " submitted=", job.submitted_unix_ms, " ended=", job.ended_unix_ms,
      " weights=", job.weights_path, " reason=", job.reason, " spec=", job.spec.SerializeAsString(),
      "\n");
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankState& state = job.ranks[rank];
    absl::StrAppend(&text, "  rank ", rank, " worker=", state.worker.value(),
                    " incarnation=", state.incarnation.value(),
                    " phase=", static_cast<int>(state.phase), " reason=", state.reason, "\n");
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
