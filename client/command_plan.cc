#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/complain.h"
#include "client/job_file.h"
#include "client/model_folder.h"
#include "client/print.h"
#include "client/render_decision.h"
#include "client/render_plan.h"
#include "client/run_plan.h"
#include "common/status_macros.h"
#include "plan/candidates.h"
#include "plan/job_spec.h"
#include "plan/world_layout.h"

namespace sherd {
namespace {

// A step of more passes over a unit is not worth the memory of its plan.
constexpr int64_t kMostPasses = int64_t{1} << 20;

// The normalised specification of a job that can run, and the world that it would get.
struct PlannedJob {
  v1::JobSpec spec;
  int workers = 0;
  // What strategies without shard groups would get.
  int without_groups = 0;
  // Of strategy auto: its layouts, of which the specification has the first one's keys.
  std::vector<v1::Candidate> candidates = {};
};

// Of those that are listed a person reads the best.
constexpr size_t kMostCandidates = 20;

absl::Status CheckLength(const v1::JobSpec& spec, int64_t workers) {
  const int64_t micro_batches = spec.train().global_batch() / spec.train().micro_batch();
  const int64_t degree = workers / TensorDegreeOf(spec.parallel());
  const int64_t rounds = (micro_batches + degree - 1) / degree;
  const int64_t units = spec.model().layers() + 2;
  if (rounds <= kMostPasses / units) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a step of ", rounds, " micro-batches a rank through ", units,
      " units is too long to plan; at most ", kMostPasses / units, " micro-batches a rank can be"));
}

absl::Status CheckRank(const std::optional<int>& rank, int workers) {
  if (!rank || *rank < workers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--rank ", *rank,
                                                 " is out of range; the nearest valid value is ",
                                                 workers - 1, " (0 to ", workers - 1, ")"));
}

// Ranks the layouts of a job of strategy auto and takes the first.
absl::Status LayOut(const PlanRequest& request, PlannedJob& job) {
  constexpr int64_t kMostTensor = 16;
  CandidateWorld world;
  world.ranks = job.workers;
  world.limits = request.limits;
  for (int64_t tensor = 2; tensor <= std::min<int64_t>(kMostTensor, job.workers); ++tensor) {
    if (job.workers % tensor == 0) world.tensor_degrees.push_back(tensor);
  }
  job.candidates =
      ListCandidates(job.spec, world, [&](const v1::ParallelSpec&) { return request.cost; });
  if (job.candidates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no strategy goes with the job's settings on ", job.workers, " workers"));
  }
  job.spec = WithCandidate(job.spec, job.candidates.front());
  return absl::OkStatus();
}

std::string RankedText(const PlannedJob& job, const PlanRequest& request) {
  return absl::StrCat("strategy auto, ranked by the cost model ", request.cost_source,
                      "; a job that runs measures its own machines first\n",
                      CandidatesTable(job.candidates, kMostCandidates), "\n");
}

absl::StatusOr<PlannedJob> ReadJob(const PlanFlags& flags, const PlanRequest& request) {
  const int64_t workers = request.workers;
  SHERD_ASSIGN_OR_RETURN(JobFile file, ReadJobFile(flags.job_file, flags.overrides));
  SHERD_RETURN_IF_ERROR(ReadModelFolder(file));
  SHERD_RETURN_IF_ERROR(CheckJobFile(file));
  SHERD_RETURN_IF_ERROR(CheckWorkerCount(workers, kMostTheoryWorkers, file.spec));
  PlannedJob job;
  job.spec = NormalizeJobSpec(file.spec);
  std::vector<std::string> idle;
  job.workers = static_cast<int>(WorldOf(job.spec, workers, idle));
  for (const std::string& sentence : idle) std::cerr << sentence << "\n";
  v1::JobSpec without_groups = job.spec;
  without_groups.mutable_parallel()->set_shard_group(0);
  job.without_groups = static_cast<int>(WorldOf(without_groups, workers, idle));
  SHERD_RETURN_IF_ERROR(CheckRank(request.rank, job.workers));
  if (job.spec.parallel().strategy() == v1::STRATEGY_AUTO) {
    SHERD_RETURN_IF_ERROR(LayOut(request, job));
  }
  SHERD_RETURN_IF_ERROR(CheckLength(job.spec, job.workers));
  return job;
}

// All strategies with --compare, else the one that was asked for.
std::vector<PlanReport> ReportsOf(const PlannedJob& job, const PlanRequest& request, bool compare) {
  if (!compare)
    return {ReportOnJob(job.spec, job.workers, request.limits, request.cost, request.threads,
                        request.rank)};
  std::vector<PlanReport> reports;
  for (const StrategyChoice& choice : StrategyChoices()) {
    v1::JobSpec spec = job.spec;
    Choose(choice, *spec.mutable_parallel());
    reports.push_back(
        ReportOnJob(spec, job.without_groups, request.limits, request.cost, request.threads));
  }
  // Not one of all jobs' choices, since it needs a shard group: the job's, or one that stands for
  // all.
  if (job.spec.parallel().strategy() == v1::STRATEGY_HYBRID) {
    reports.push_back(
        ReportOnJob(job.spec, job.workers, request.limits, request.cost, request.threads));
    return reports;
  }
  const int64_t degree = job.without_groups / TensorDegreeOf(job.spec.parallel());
  v1::JobSpec hybrid = job.spec;
  Choose(kHybridChoice, *hybrid.mutable_parallel());
  hybrid.mutable_parallel()->set_shard_group(ComparedShardGroup(degree));
  if (hybrid.parallel().shard_group() > 1) {
    reports.push_back(
        ReportOnJob(hybrid, job.without_groups, request.limits, request.cost, request.threads));
  }
  return reports;
}

// A plan that does not fit is an answer, but no success: neither is one of bad usage.
ExitCode EndOf(const std::vector<PlanReport>& reports) {
  const bool refused = std::all_of(reports.begin(), reports.end(), [](const PlanReport& report) {
    return report.fits.has_value() && !*report.fits;
  });
  if (!refused) return ExitCode::kSuccess;
  for (const PlanReport& report : reports) std::cerr << ShortfallText(report) << std::endl;
  return ExitCode::kOther;
}

}  // namespace

ExitCode PlanCommand(const PlanFlags& flags, OutputFormat format) {
  const absl::StatusOr<PlanRequest> request = ReadPlanFlags(flags);
  if (!request.ok()) return ComplainAboutUse(request.status());
  std::vector<PlanReport> reports;
  for (const TheoryQuestion& question : request->theory) {
    reports.push_back(ReportOnTheory(question, request->limits, request->known_bandwidth));
  }
  // Of one rank of a job.
  Json details = Json::object();
  std::string heading;
  std::string detail_text;
  if (reports.empty()) {
    const absl::StatusOr<PlannedJob> job = ReadJob(flags, *request);
    if (!job.ok()) return ComplainAboutUse(job.status());
    reports = ReportsOf(*job, *request, flags.compare);
    if (!job->candidates.empty()) {
      details["auto"] = {{"cost_model", request->cost_source},
                         {"keys", KeysJson(job->candidates.front())},
                         {"candidates", CandidatesJson(job->candidates)}};
      heading = RankedText(*job, *request);
    }
    const int rank = request->rank.value_or(0);
    if (request->rank) {
      const WorldLayout layout(job->spec, job->workers);
      details["layout"] = RankLayoutJson(layout, rank);
      detail_text = RankLayoutText(layout, rank);
    }
    if (flags.explain) {
      const RankPlan plan = BuildRankPlan(job->spec, rank, job->workers);
      details["operations"] = OperationsJson(plan);
      absl::StrAppend(&detail_text, "\nThe step of rank ", rank, "\n",
                      Describe(plan.step, plan.inventory));
    }
  }
  if (flags.compare) {
    Json json = ComparisonJson(reports, *request);
    json.update(details);
    Print(format, json, absl::StrCat(heading, ComparisonText(reports, *request)));
  } else {
    Json json = PlanJson(reports.front(), *request);
    json.update(details);
    Print(format, json, absl::StrCat(heading, PlanText(reports.front(), *request), detail_text));
  }
  return EndOf(reports);
}

}  // namespace sherd
