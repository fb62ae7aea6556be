#include "client/run_plan.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "common/utf8.h"
#include "plan/job_spec.h"
#include "plan/parallel_rules.h"
#include "plan/world_layout.h"

namespace sherd {
namespace {

std::string Absolute(const std::string& directory, const std::string& path) {
  return (std::filesystem::path(directory) / path).lexically_normal().string();
}

}  // namespace

RunPlan PlanRun(const RunOptions& options, const JobFile& file,
                const std::string& working_directory) {
  RunPlan plan;
  plan.data_root = Absolute(working_directory, options.data_root.empty() ? "/" : options.data_root);
  plan.spec = file.spec;
  plan.output_root =
      Absolute(working_directory,
               options.out.empty() ? absl::StrCat("out/", file.spec.name()) : options.out);
  plan.log_directory = Absolute(plan.output_root, "logs");
  if (plan.spec.checkpoint().dir().empty()) plan.spec.mutable_checkpoint()->set_dir("weights");
  if (!options.data_root.empty()) return plan;
  if (!plan.spec.model().from().empty()) {
    plan.spec.mutable_model()->set_from(Absolute(working_directory, plan.spec.model().from()));
  }
  for (auto* paths :
       {plan.spec.mutable_data()->mutable_train(), plan.spec.mutable_data()->mutable_eval()}) {
    for (std::string& path : *paths) path = Absolute(working_directory, path);
  }
  std::string& tokenizer = *plan.spec.mutable_data()->mutable_tokenizer();
  if (!tokenizer.empty() && tokenizer != "bytes") {
    tokenizer = Absolute(working_directory, tokenizer);
  }
  return plan;
}

absl::Status CheckPaths(const RunOptions& options, const RunPlan& plan,
                        const std::string& working_directory) {
  const std::pair<absl::string_view, const std::string&> paths[] = {
      {"the path of --out", options.out},
      {"the path of --data-root", options.data_root},
      {"the path of the present directory", working_directory}};
  for (const auto& [what, path] : paths) {
    if (FindInvalidUtf8(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is not UTF-8 text, as the paths of a job must be"));
    }
  }
  std::error_code error;
  if (std::filesystem::is_directory(plan.data_root, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--data-root ", options.data_root, " is not a directory"));
}

absl::Status CheckWorkerCount(int64_t workers, int64_t most, const v1::JobSpec& spec) {
  if (workers < 1 || workers > most) {
    return absl::InvalidArgumentError(absl::StrCat("--workers ", workers,
                                                   " is out of range; the nearest valid value is ",
                                                   workers < 1 ? 1 : most, " (1 to ", most, ")"));
  }
  const int64_t min_workers = NormalizeJobSpec(spec).elastic().min_workers();
  if (workers < min_workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers ", workers, " is less than elastic.min_workers, which is ", min_workers));
  }
  const int64_t granule = WorldGranuleOf(spec.parallel());
  const int64_t least = (min_workers + granule - 1) / granule * granule;
  if (workers >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--workers ", workers, " is too few: a world of at least ",
                   Counted(min_workers, "worker"), " is a multiple of ", granule, " (",
                   GranuleText(spec.parallel()), "); the nearest valid value is ", least));
}

int64_t WorldOf(const v1::JobSpec& spec, int64_t workers, std::vector<std::string>& idle) {
  const auto keep = [&](const char* key, int64_t value, int64_t kept) {
    if (kept < workers) {
      idle.push_back(absl::StrCat(key, " is ", value, ": of ", workers, " workers ", workers - kept,
                                  kept + 1 == workers ? " stays" : " stay", " idle"));
    }
    workers = std::min(workers, kept);
  };
  const int64_t most = spec.elastic().max_workers();
  if (most > 0) keep("elastic.max_workers", most, most);
  const int64_t granule = WorldGranuleOf(spec.parallel());
  const bool grouped = spec.parallel().shard_group() > 0;
  const char* key = spec.parallel().tensor() <= 1 ? "parallel.shard_group"
                    : grouped                     ? "parallel.tensor × shard_group"
                                                  : "parallel.tensor";
  keep(key, granule, workers / granule * granule);
  return workers;
}

}  // namespace sherd
