#include "client/render_top.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/recovery_phases.h"
#include "client/render_text.h"
#include "common/counted.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// More are on no screen.
constexpr size_t kMostRanks = 64;

std::map<std::string, int64_t> ByStatus(const std::vector<v1::Worker>& workers) {
  std::map<std::string, int64_t> counts;
  for (const v1::Worker& worker : workers) ++counts[worker.status()];
  return counts;
}

// "0.42s of epoch 3"; "-" of a job that has recovered from nothing.
std::string RecoveryText(const v1::Job& job) {
  double seconds = 0;
  for (const auto& [phase, taken] : PhasesOf(job.last_epoch())) seconds += taken;
  if (seconds <= 0) return "-";
  return absl::StrFormat("%.2fs, epoch %d", seconds, job.last_epoch().epoch());
}

// What the rest of the steps takes at the speed of the last one.
std::string EtaText(const v1::Job& job) {
  const int64_t left = job.spec().train().steps() - job.step();
  const double ms = job.last_step().step_ms();
  if (job.state() != v1::JOB_STATE_RUNNING || left <= 0 || ms <= 0) return "-";
  return HumanDuration(absl::Milliseconds(ms * static_cast<double>(left)));
}

std::string LargestPeak(const v1::Job& job) {
  int64_t most = 0;
  for (const v1::RankStatus& rank : job.ranks()) most = std::max(most, rank.peak().measured());
  return most > 0 ? HumanBytes(most) : "-";
}

std::vector<std::string> JobRow(const v1::Job& job) {
  const bool steps = job.has_last_step();
  return {job.id(),
          job.name(),
          std::string(NameOf(job.state())),
          job.spec().train().steps() > 0 ? absl::StrCat(job.step(), "/", job.spec().train().steps())
                                         : absl::StrCat(job.step()),
          job.step() > 0 ? absl::StrFormat("%.4f", job.loss()) : "-",
          steps ? WithThousands(std::llround(std::min(job.last_step().tokens_per_second(), 1e15)))
                : "-",
          steps ? absl::StrFormat("%.0f", job.last_step().step_ms()) : "-",
          absl::StrCat(job.ranks_size()),
          LargestPeak(job),
          RecoveryText(job),
          EtaText(job)};
}

void AppendRanks(const v1::Job& job, std::vector<std::vector<std::string>>& rows) {
  for (const v1::RankStatus& rank : job.ranks()) {
    if (rows.size() > kMostRanks) return;
    const v1::LedgerLine& peak = rank.peak();
    rows.push_back({job.id(), absl::StrCat(rank.rank()), rank.worker_id(), rank.status(),
                    rank.has_peak() ? HumanBytes(peak.measured()) : "-",
                    rank.has_peak() ? HumanBytes(peak.predicted()) : "-",
                    rank.reason().empty() ? "-" : rank.reason()});
  }
}

}  // namespace

std::string TopText(const Cluster& cluster) {
  std::string text = Counted(static_cast<int64_t>(cluster.workers.size()), "worker");
  const char* separator = ": ";
  for (const auto& [status, count] : ByStatus(cluster.workers)) {
    absl::StrAppend(&text, separator, count, " ", status);
    separator = ", ";
  }
  std::vector<std::vector<std::string>> jobs = {{"JOB", "NAME", "STATE", "STEP", "LOSS", "TOKENS/S",
                                                 "STEP MS", "RANKS", "PEAK", "LAST RECOVERY",
                                                 "ETA"}};
  std::vector<std::vector<std::string>> ranks = {
      {"JOB", "RANK", "WORKER", "STATUS", "PEAK", "PREDICTED", "REASON"}};
  for (const v1::Job& job : cluster.jobs) {
    jobs.push_back(JobRow(job));
    if (job.ended_unix_ms() == 0) AppendRanks(job, ranks);
  }
  absl::StrAppend(
      &text, "\n\n",
      Table(jobs, {false, false, false, true, true, true, true, true, true, false, true}));
  if (ranks.size() > 1) {
    absl::StrAppend(&text, "\n", Table(ranks, {false, true, false, false, true, true, false}));
  }
  return text;
}

Json TopJson(const Cluster& cluster) {
  Json workers = Json::object();
  for (const auto& [status, count] : ByStatus(cluster.workers)) workers[status] = count;
  return {{"workers", std::move(workers)}, {"jobs", JobsJson(cluster.jobs)}};
}

}  // namespace sherd
