#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/complain.h"
#include "client/interrupts.h"
#include "client/janitor.h"
#include "client/job_file.h"
#include "client/local_run.h"
#include "client/run_files.h"
#include "client/run_plan.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// As short as it can be typed from here.
std::string Shortened(const std::string& path, const std::string& working_directory) {
  const std::string relative =
      std::filesystem::path(path).lexically_relative(working_directory).string();
  return relative.empty() || relative.substr(0, 2) == ".." ? path : relative;
}

// Where the weights are and what to type next.
void SayWhatNext(const RunOptions& options, const RunPlan& plan, const v1::Done& done,
                 const std::string& working_directory) {
  if (options.format != OutputFormat::kTable) return;
  if (done.state() == v1::JOB_STATE_SUCCEEDED && !done.weights_path().empty()) {
    const std::string weights = Shortened(done.weights_path(), working_directory);
    std::cout << "\nweights: " << weights << "\nto see a sample: " << options.program << " sample "
              << weights << " --tokens 200" << std::endl;
    return;
  }
  std::cerr << "logs: " << Shortened(plan.log_directory, working_directory) << std::endl;
}

}  // namespace

ExitCode RunCommand(const RunOptions& options, StandardOutput& output) {
  const absl::StatusOr<JobFile> file = ReadJobFile(options.job_file, options.overrides);
  if (!file.ok()) return ComplainAboutUse(file.status());
  if (absl::Status valid = CheckJobFile(*file); !valid.ok()) return Complain(valid);
  if (absl::Status enough = CheckWorkerCount(options.workers, kMostLocalWorkers, file->spec);
      !enough.ok()) {
    return Complain(enough);
  }
  std::vector<std::string> chatter;
  WorldOf(NormalizeJobSpec(file->spec), options.workers, chatter);
  for (const std::string& sentence : chatter) std::cerr << sentence << "\n";
  std::error_code error;
  const std::string working_directory = std::filesystem::current_path(error).string();
  const RunPlan plan = PlanRun(options, *file, working_directory);
  if (absl::Status usable = CheckPaths(options, plan, working_directory); !usable.ok()) {
    return Complain(usable);
  }
  RunFiles files(plan.output_root, plan.log_directory);
  if (absl::Status made = files.Make(); !made.ok()) return Complain(made);

  // Signals are blocked first, so that none finds the run half built; then the janitor forks, while
  // this is the only thread.
  Interrupts interrupts;
  absl::StatusOr<Janitor> janitor = Janitor::Start();
  if (!janitor.ok()) return Complain(janitor.status());
  Progress progress({options.format, isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0,
                     NormalizeJobSpec(plan.spec).train().steps()},
                    std::cout, std::cerr);
  LocalRun run(options, *file, plan, *janitor, interrupts, output, progress);
  const absl::Status executed = run.Execute();
  progress.Finish();
  if (run.refused()) files.Remove();
  if (executed.code() == absl::StatusCode::kCancelled) {
    Complain(executed);
    return ExitCode::kCancelled;
  }
  if (!executed.ok()) return Complain(executed);
  SayWhatNext(options, plan, *progress.done(), working_directory);
  return ExitCodeOf(progress.done()->state());
}

}  // namespace sherd
