#include "client/local_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/job_client.h"
#include "common/counted.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr absl::Duration kStartDeadline = absl::Seconds(30);
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kStopGrace = absl::Seconds(5);

struct Program {
  const char* name;
  const char* log;
  const char* word;
};
// By role.
constexpr Program kPrograms[] = {{"sherd-coordinator", "coordinator.log", "the coordinator"},
                                 {"sherd-worker", "workers.log", "the workers' supervisor"}};

// 0 for a file that is not there.
int64_t SizeOf(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

}  // namespace

std::vector<std::string> LogNames() {
  std::vector<std::string> names;
  for (const Program& program : kPrograms) names.emplace_back(program.log);
  return names;
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> directories = {self.parent_path().string()};
  if (const char* path = std::getenv("PATH")) {
    for (const absl::string_view directory : absl::StrSplit(path, ':', absl::SkipEmpty())) {
      directories.emplace_back(directory);
    }
  }
  for (const std::string& directory : directories) {
    const std::string candidate = absl::StrCat(directory, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return absl::FailedPreconditionError(absl::StrCat("cannot find the program ", name,
                                                    " beside sherd, in ", directories[0],
                                                    ", nor on PATH; build or install it"));
}

LocalCluster::LocalCluster(Options options, Janitor& janitor, const Interrupts& interrupts)
    : options_(std::move(options)), janitor_(janitor), interrupts_(interrupts) {}

LocalCluster::~LocalCluster() { Stop(); }

LocalProcess* LocalCluster::ProcessOf(Role role) {
  absl::MutexLock lock(&mutex_);
  return processes_[role].get();
}

absl::Status LocalCluster::StartProgram(Role role, std::vector<std::string> arguments) {
  SHERD_ASSIGN_OR_RETURN(std::string path, FindProgram(kPrograms[role].name));
  arguments.insert(arguments.begin(), std::move(path));
  arguments.push_back("--exit-with-parent");
  const std::string log = absl::StrCat(options_.log_directory, "/", kPrograms[role].log);
  log_begins_[role] = SizeOf(log);
  SHERD_ASSIGN_OR_RETURN(auto process, LocalProcess::Start(arguments, log));
  janitor_.TakeCareOf(process->pid());
  absl::MutexLock lock(&mutex_);
  processes_[role] = std::move(process);
  return absl::OkStatus();
}

absl::Status LocalCluster::Failure(Role role, absl::string_view what) {
  const std::string log = absl::StrCat(options_.log_directory, "/", kPrograms[role].log);
  const std::string tail = TailOfFile(log, log_begins_[role]);
  return absl::UnavailableError(absl::StrCat(
      kPrograms[role].word, " ", what, tail.empty() ? "; its log is empty: " : "; the end of ", log,
      tail.empty() ? "" : ":\n", tail));
}

absl::Status LocalCluster::CheckAlive(Role role) {
  LocalProcess* const process = ProcessOf(role);
  if (process == nullptr) return absl::OkStatus();
  const std::optional<std::string> end = process->HowItEnded();
  return end ? Failure(role, *end) : absl::OkStatus();
}

absl::Status LocalCluster::StartCoordinator() {
  const std::string port_file = absl::StrCat(janitor_.directory(), "/port");
  const std::string data = absl::StrCat(janitor_.directory(), "/coordinator");
  std::error_code error;
  if (!std::filesystem::create_directory(data, error)) {
    return absl::InternalError(absl::StrCat("cannot make ", data, ": ", error.message()));
  }
  SHERD_RETURN_IF_ERROR(StartProgram(
      kCoordinator, {"--listen", "127.0.0.1:0", "--port-file", port_file, "--data-dir", data}));
  return AwaitAddress(port_file);
}

absl::Status LocalCluster::AwaitAddress(const std::string& port_file) {
  const absl::Time deadline = absl::Now() + kStartDeadline;
  while (absl::Now() < deadline) {
    std::ifstream stream(port_file);
    // The file is written whole, with a newline at its end.
    if (std::string line; stream && std::getline(stream, line) && !stream.eof()) {
      absl::StripAsciiWhitespace(&line);
      const bool port_alone = line.find(':') == std::string::npos;
      address_ = port_alone ? absl::StrCat("127.0.0.1:", line) : line;
      return absl::OkStatus();
    }
    SHERD_RETURN_IF_ERROR(CheckCoordinator());
    if (interrupts_.InterruptedWithin(kPollInterval)) return absl::CancelledError("interrupted");
  }
  return Failure(kCoordinator, absl::StrCat("did not say its address within ",
                                            absl::FormatDuration(kStartDeadline)));
}

absl::Status LocalCluster::StartWorkers(JobClient& client) {
  SHERD_RETURN_IF_ERROR(StartProgram(
      kWorkers, {"--coordinator", address_, "--devices", absl::StrCat("cpu:", options_.workers),
                 "--data-root", options_.data_root, "--output-root", options_.output_root}));
  const absl::Time deadline = absl::Now() + kStartDeadline;
  std::string connected;
  while (absl::Now() < deadline) {
    SHERD_RETURN_IF_ERROR(CheckCoordinator());
    SHERD_RETURN_IF_ERROR(CheckWorkers());
    SHERD_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers());
    int count = 0;
    connected.clear();
    for (const v1::Worker& worker : workers) {
      if (worker.status() == "lost" || worker.status() == "drained") continue;
      ++count;
      absl::StrAppend(&connected, connected.empty() ? "" : ", ", worker.device());
    }
    if (count >= options_.workers) return absl::OkStatus();
    if (interrupts_.InterruptedWithin(kPollInterval)) return absl::CancelledError("interrupted");
  }
  return Failure(kWorkers, absl::StrCat("did not bring ", Counted(options_.workers, "worker"),
                                        " up within ", absl::FormatDuration(kStartDeadline),
                                        "; connected: ", connected.empty() ? "none" : connected));
}

void LocalCluster::Stop() {
  for (const Role role : {kWorkers, kCoordinator}) {
    LocalProcess* const process = ProcessOf(role);
    if (process == nullptr) continue;
    process->Stop(kStopGrace);
    janitor_.Forget(process->pid());
  }
}

void LocalCluster::Kill() {
  for (const Role role : {kWorkers, kCoordinator}) {
    if (LocalProcess* const process = ProcessOf(role)) process->Kill();
  }
}

}  // namespace sherd
