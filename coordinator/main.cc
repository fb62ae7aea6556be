// sherd-coordinator: the daemon that queues jobs, places them on workers and remembers.
//
// Exit codes: 0 after SIGTERM or SIGINT, 1 when it cannot start or go on, 2 for bad usage.

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/command_docs.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/rpc/health_server.h"
#include "common/rpc/security.h"
#include "common/status_macros.h"
#include "coordinator/rpc/server.h"
#include "coordinator/runtime/controller.h"
#include "coordinator/runtime/event_loop.h"
#include "coordinator/runtime/steady_clock.h"
#include "coordinator/store/event_log.h"

namespace sherd {
namespace {

struct Flags {
  std::string listen = "127.0.0.1:7700";
  std::string data_dir = "sherd-coordinator-data";
  std::string metrics;
  std::string failure_detection = "3s";
  std::string port_file;
  std::string tokens;
  std::string health;
  SecurityOptions security;
  bool exit_with_parent = false;
};

std::string Random(int bytes) {
  std::string random(bytes, '\0');
  SHERD_CHECK(getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()));
  return random;
}

// Whoever waits for the file never sees half of it.
absl::Status WritePortFile(const std::string& path, const std::string& address) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary);
  file << address << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(temporary, path, error);
  if (!file || error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write the port file ", path, "; give another --port-file"));
  }
  return absl::OkStatus();
}

// SIGTERM and SIGINT, taken from all threads that are started later.
class StopSignals {
 public:
  StopSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    SHERD_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC);
    ended_ = eventfd(0, EFD_CLOEXEC);
    SHERD_CHECK(signals_ >= 0 && ended_ >= 0);
  }
  ~StopSignals() {
    close(signals_);
    close(ended_);
  }
  StopSignals(const StopSignals&) = delete;

  // Until a signal arrives or Interrupt was called.
  void Wait() {
    pollfd descriptors[] = {{signals_, POLLIN, 0}, {ended_, POLLIN, 0}};
    while (poll(descriptors, 2, -1) < 0 && errno == EINTR) {
    }
  }
  // From any thread.
  void Interrupt() { eventfd_write(ended_, 1); }

 private:
  int signals_ = -1;
  int ended_ = -1;
};

absl::Status Serve(const Flags& flags, StopSignals& signals) {
  ControllerOptions options;
  absl::Duration& detection = options.fleet.failure_detection;
  if (!absl::ParseDuration(flags.failure_detection, &detection) ||
      detection < absl::Milliseconds(100) || detection > absl::Hours(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--failure-detection must be between 100ms and 1h, not \"", flags.failure_detection, "\""));
  }
  auto registry = std::make_shared<prometheus::Registry>();
  AddBuildInfo(*registry, "coordinator");
  const SteadyClock clock;
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<EventLog> log, EventLog::Open(flags.data_dir));
  CoordinatorMetrics metrics(*registry);
  Controller controller(options, clock, *log, Random, metrics);
  SHERD_RETURN_IF_ERROR(controller.Recover());
  EventLoop loop(controller, clock, metrics);
  SHERD_ASSIGN_OR_RETURN(
      std::unique_ptr<Server> server,
      Server::Start({.address = flags.listen, .security = flags.security, .tokens = flags.tokens},
                    loop, *registry));
  std::unique_ptr<HealthServer> health;
  if (!flags.health.empty()) {
    SHERD_ASSIGN_OR_RETURN(health, HealthServer::Start(flags.health));
    Log(Severity::kInfo, absl::StrCat("health on ", health->address()));
  }
  std::unique_ptr<MetricsServer> metrics_server;
  if (!flags.metrics.empty()) {
    SHERD_ASSIGN_OR_RETURN(
        metrics_server, MetricsServer::Start(flags.metrics, registry, {{"state", flags.data_dir}}));
    Log(Severity::kInfo, absl::StrCat("metrics on port ", metrics_server->port()));
  }
  absl::Status ended;
  std::thread worker([&] {
    ended = loop.Run();
    signals.Interrupt();
  });
  absl::Status status;
  if (!flags.port_file.empty()) status = WritePortFile(flags.port_file, server->address());
  if (status.ok()) {
    Log(Severity::kInfo, absl::StrCat("serving on ", server->address()));
    signals.Wait();
  }
  loop.Stop();
  worker.join();
  server.reset();
  return status.ok() ? ended : status;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Queues training jobs, places them on workers and remembers.", "sherd-coordinator");
  app.add_option("--listen", flags.listen, "HOST:PORT to serve; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--data-dir", flags.data_dir, "Directory of the event log")->capture_default_str();
  app.add_option("--metrics", flags.metrics, "HOST:PORT to serve /metrics on");
  app.add_option("--health", flags.health,
                 "HOST:PORT to answer health checks on, in plain text and nothing else");
  app.add_option(
         "--tokens", flags.tokens,
         "File of who may call: ROLE NAME SHA256 a line, ROLE view, submit, admin or worker")
      ->envname("SHERD_TOKENS");
  DeclareSecurity(app, flags.security);
  app.add_option("--failure-detection", flags.failure_detection,
                 "A worker that is silent for this long is lost")
      ->capture_default_str();
  app.add_option("--port-file", flags.port_file, "File to write HOST:PORT to when serving");
  app.add_flag("--exit-with-parent", flags.exit_with_parent, "End when the parent process does");
  app.set_version_flag("--version", "sherd-coordinator " SHERD_VERSION);
  AddManual(app);
  const pid_t parent = getppid();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  SetLogProgram("coordinator");
  // Errors are told once, in a sentence of ours; who debugs gRPC sets the variable.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // The log holds the jobs' secrets.
  umask(077);
  // A reader of our standard error that went away must not end the daemon.
  signal(SIGPIPE, SIG_IGN);
  StopSignals signals;
  if (flags.exit_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    // The parent may have died before the request took hold.
    if (getppid() != parent) return 0;
  }
  const absl::Status status = Serve(flags, signals);
  if (status.ok()) return 0;
  Log(Severity::kError, status.message());
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) { return sherd::Main(argc, argv); }
