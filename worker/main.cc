#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "worker/agent/agent.h"
#include "worker/agent/identity.h"
#include "worker/agent/parent.h"
#include "worker/agent/signals.h"
#include "worker/comm/data_link.h"
#include "worker/train/trainer.h"

namespace sherd {
namespace {

struct Flags {
  std::string coordinator;
  std::string device = "cpu:0";
  std::string devices;
  std::string name;
  std::string data_root;
  std::string output_root;
  std::string metrics;
  std::string connect_timeout = "0";
  int threads = 0;
  uint64_t incarnation = 0;
  bool exit_with_parent = false;
};

void Declare(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", "sherd-worker " SHERD_VERSION);
  app.add_option("--coordinator", flags.coordinator, "HOST:PORT of the coordinator")
      ->envname("SHERD_COORDINATOR")
      ->required();
  app.add_option("--device", flags.device, "The device to own: cpu:INDEX")->capture_default_str();
  app.add_option("--devices", flags.devices,
                 "Supervise one worker process a device: all, or cpu:COUNT for so many CPU slots")
      ->excludes("--device");
  app.add_option("--name", flags.name, "This host's part of the worker id (default: host name)");
  app.add_option("--data-root", flags.data_root, "Jobs may read below this directory only");
  app.add_option("--output-root", flags.output_root, "Jobs may write below this directory only");
  app.add_option("--threads", flags.threads, "Compute threads a worker (default: cores / workers)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--metrics", flags.metrics, "HOST:PORT that serves /metrics; port 0: any");
  app.add_option("--connect-timeout", flags.connect_timeout,
                 "Give up when the coordinator cannot be reached for this long, as 30s; 0: never")
      ->capture_default_str();
  app.add_flag("--exit-with-parent", flags.exit_with_parent, "End when the parent process ends");
  app.add_option("--incarnation", flags.incarnation, "Chosen by the supervisor")->group("");
}

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text) {
  absl::Duration timeout;
  if (!absl::ParseDuration(text, &timeout) || timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--connect-timeout ", text, " is not a duration such as 30s, 500ms or 0"));
  }
  return timeout;
}

absl::Status CheckDevice(const std::string& device) {
  if (absl::StartsWith(device, "cuda")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", device, ": this build has no CUDA back end yet; use cpu:0"));
  }
  absl::string_view index = device;
  int number = 0;
  if (!absl::ConsumePrefix(&index, "cpu:") || !absl::SimpleAtoi(index, &number) || number < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", device, " is not a device; use cpu:INDEX, as cpu:0"));
  }
  return absl::OkStatus();
}

v1::Hello IdentityOf(const Flags& flags, const DataListener& listener) {
  v1::Hello identity;
  const std::string host = HostName();
  identity.set_worker_id(absl::StrCat(flags.name.empty() ? host : flags.name, "/", flags.device));
  identity.set_incarnation(flags.incarnation != 0 ? flags.incarnation : DrawIncarnation());
  identity.set_device(flags.device);
  identity.set_host(host);
  identity.set_shared_memory_domain(SharedMemoryDomain());
  identity.set_data_address(listener.address());
  identity.set_numerics_fingerprint(NumericsFingerprint());
  identity.set_pid(getpid());
  identity.set_memory_bytes(HostMemoryBytes());
  return identity;
}

absl::StatusOr<int> RunWorker(const Flags& flags) {
  SetLogProgram(absl::StrCat("worker ", flags.device));
  SHERD_RETURN_IF_ERROR(CheckDevice(flags.device));
  SHERD_ASSIGN_OR_RETURN(const absl::Duration connect_timeout, ParseTimeout(flags.connect_timeout));
  const auto registry = std::make_shared<prometheus::Registry>();
  AddBuildInfo(*registry, "worker");
  std::unique_ptr<MetricsServer> metrics_server;
  if (!flags.metrics.empty()) {
    SHERD_ASSIGN_OR_RETURN(metrics_server, MetricsServer::Start(flags.metrics, registry));
    Log(Severity::kInfo, absl::StrCat("serving /metrics on port ", metrics_server->port()));
  }
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<DataListener> listener, DataListener::Bind());

  const TrainerOptions trainer_options{
      .data_root = flags.data_root,
      .output_root = flags.output_root,
      .threads = flags.threads > 0 ? flags.threads : HostCores(),
  };
  AgentOptions options;
  options.identity = IdentityOf(flags, *listener);
  options.session.coordinator = flags.coordinator;
  options.session.connect_timeout = connect_timeout;
  options.make_trainer = [&](const v1::Assignment& assignment) {
    return Trainer::Make(assignment, trainer_options, *listener, *registry);
  };
  options.inspect = [&](const v1::InspectData& request) {
    return InspectJobFiles(request.data(), request.checkpoint(), request.seq_len(), request.vocab(),
                           trainer_options);
  };
  options.metrics = registry;

  Agent agent(std::move(options));
  const SignalWatcher watcher([&agent, asked = false](const char* signal) mutable {
    if (std::exchange(asked, true)) _exit(kExitRefused);  // asked twice: at once
    agent.RequestStop(signal);
  });
  const int code = agent.Run();
  // A trainer that does not end holds up every destructor; the kernel frees what it holds.
  if (code == kExitStuck) _exit(code);
  return code;
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) {
  sherd::BlockSignals();
  sherd::Flags flags;
  CLI::App app("Trains one device's share of the jobs that a coordinator assigns.", "sherd-worker");
  sherd::Declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : sherd::kExitUsage;
  }
  if (flags.exit_with_parent) sherd::ExitWithParent();
  const absl::StatusOr<int> code = sherd::RunWorker(flags);
  if (code.ok()) return *code;
  std::fprintf(stderr, "sherd-worker: %s\n", std::string(code.status().message()).c_str());
  return absl::IsInvalidArgument(code.status()) ? sherd::kExitUsage : sherd::kExitRefused;
}
