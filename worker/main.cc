#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/command_docs.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/rpc/health_server.h"
#include "common/rpc/security.h"
#include "common/status_macros.h"
#include "prometheus/gauge.h"
#include "worker/agent/agent.h"
#include "worker/agent/child_process.h"
#include "worker/agent/command_line.h"
#include "worker/agent/exit_reporter.h"
#include "worker/agent/identity.h"
#include "worker/agent/parent.h"
#include "worker/agent/registration_pipe.h"
#include "worker/agent/signals.h"
#include "worker/agent/supervisor.h"
#include "worker/checkpoint/checkpoints_command.h"
#include "worker/comm/data_link.h"
#include "worker/comm/link_address.h"
#include "worker/comm/nccl/nccl_library.h"
#include "worker/data/data_command.h"
#include "worker/dataset/data_commands.h"
#include "worker/device/gpu_metrics.h"
#include "worker/device/gpu_watch.h"
#include "worker/device/known_peaks.h"
#include "worker/device/open_device.h"
#include "worker/evaluate/evaluate_command.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/holding_store.h"
#include "worker/pack/tokenize_command.h"
#include "worker/pretrained/commands.h"
#include "worker/sample/sample_command.h"
#include "worker/train/device_watch.h"
#include "worker/train/inspect_job.h"
#include "worker/train/process_memory.h"
#include "worker/train/trainer.h"

namespace sherd {
namespace {

// The name that health checks ask by for a worker, or all workers of a node, that has a
// coordinator.
constexpr char kReady[] = "ready";

// Whether an address leads whoever uses it to itself.
bool IsLoopback(absl::string_view network_address) {
  return absl::StartsWith(network_address, "tcp:127.") ||
         absl::StartsWith(network_address, "tcp:[::1]");
}

// As the user spells it, since users' absolute directories are spelled so; "" if it cannot be told.
std::string OutputRootOf(const WorkerFlags& flags) {
  std::error_code error;
  const auto directory =
      std::filesystem::absolute(flags.output_root.empty() ? "." : flags.output_root, error);
  return error ? "" : directory.lexically_normal().string();
}

// Its address, and that what it is called with can be: else every attempt would fail alike.
absl::Status CheckCoordinator(const WorkerFlags& flags) {
  SHERD_RETURN_IF_ERROR(CheckAddress("--coordinator", flags.coordinator));
  SHERD_RETURN_IF_ERROR(ReadAuthorization(flags.security).status());
  return CheckSecurity(flags.security, flags.coordinator);
}

absl::StatusOr<std::unique_ptr<DataListener>> BindListener(const WorkerFlags& flags) {
  std::string host = flags.data_host;
  if (host == "0.0.0.0" || host == "::" || host == "[::]") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--data-host: ", host, " leads nobody here; name the address that other hosts use"));
  }
  if (host.empty()) {
    // Whoever is where the coordinator is, or behind it, comes the same way. Without a way to it
    // there are no such workers yet.
    const absl::StatusOr<std::string> facing = HostTowards(flags.coordinator);
    host = facing.ok() ? *facing : "127.0.0.1";
  }
  absl::StatusOr<std::unique_ptr<DataListener>> listener = DataListener::Bind(host);
  if (listener.ok() || flags.data_host.empty()) return listener;
  return absl::Status(listener.status().code(),
                      absl::StrCat("--data-host: ", listener.status().message()));
}

v1::Hello IdentityOf(const WorkerFlags& flags, const DataListener& listener) {
  v1::Hello identity;
  identity.set_worker_id(WorkerIdOf(flags, flags.device).value());
  identity.set_incarnation(flags.incarnation != 0 ? flags.incarnation : DrawIncarnation());
  identity.set_device(flags.device);
  identity.set_host(HostName());
  identity.set_shared_memory_domain(SharedMemoryDomain());
  identity.set_data_address(listener.address());
  if (!flags.data_host.empty() || !IsLoopback(listener.network_address())) {
    identity.set_network_address(listener.network_address());
  }
  identity.set_numerics_fingerprint(NumericsFingerprint());
  identity.set_pid(getpid());
  identity.set_memory_bytes(HostMemoryBytes());
  identity.set_output_root(OutputRootOf(flags));
  return identity;
}

// Links to the members of large groups are descriptors, and strangers may hold some for a while.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Nothing without --health; not ready at first.
absl::StatusOr<std::unique_ptr<HealthServer>> StartHealth(const WorkerFlags& flags) {
  if (flags.health.empty()) return nullptr;
  SHERD_RETURN_IF_ERROR(CheckAddress("--health", flags.health));
  SHERD_ASSIGN_OR_RETURN(std::unique_ptr<HealthServer> health, HealthServer::Start(flags.health));
  health->Set(kReady, false);
  Log(Severity::kInfo, absl::StrCat("answering health checks on ", health->address()));
  return health;
}

// Trainers on the process's device. A device that has failed does nothing more in this process,
// which then asks to leave: what it holds lies in host memory, and is fetched, or saved, before it
// goes.
class DeviceTrainers {
 public:
  using MakeTrainer =
      std::function<std::unique_ptr<Trainer>(const v1::Assignment&, Accelerator* device)>;

  // Null: the processor. It and what `make` uses outlive the object.
  DeviceTrainers(Accelerator* device, MakeTrainer make) : device_(device), make_(std::move(make)) {}
  // Before the first trainer is made; called from its thread.
  void set_leave(std::function<void(absl::string_view reason)> leave) { leave_ = std::move(leave); }

  std::unique_ptr<Trainer> Make(const v1::Assignment& assignment) {
    if (device_ == nullptr) return make_(assignment, nullptr);
    if (const absl::Status why = WhyBroken(*device_); !why.ok()) {
      // Saving computes nothing. Who was given ranks to train all the same lets others have them.
      if (assignment.save_and_stop()) return make_(assignment, nullptr);
      _exit(kExitStuck);
    }
    return WatchDevice(make_(assignment, device_), *device_, [this](const absl::Status& why) {
      const std::string reason =
          absl::StrCat("leaving for a new process, since the device has failed: ", why.message());
      Log(Severity::kError, reason);
      broken_ = true;
      leave_(reason);
    });
  }
  // Of a process that ends with `code`.
  int ExitCode(int code) const { return broken_ && code == kExitAsked ? kExitStuck : code; }

 private:
  Accelerator* const device_;
  const MakeTrainer make_;
  std::function<void(absl::string_view)> leave_;
  std::atomic<bool> broken_{false};
};

// By which the device forms groups with others; null: it does so through the hosts.
// kFailedPrecondition when a library that was named is not there, or of no use to the device.
absl::StatusOr<std::unique_ptr<NcclApi>> OpenNcclFor(Accelerator* device, const std::string& nccl) {
  if (nccl == "none") return nullptr;
  const bool named = nccl != "auto";
  // NCCL refuses two ranks on one PCI address, which all slices of a card share.
  const bool slice = device != nullptr && absl::StrContains(device->model(), " MIG ");
  if (slice || device == nullptr || device->streams() == nullptr || device->unique_id().empty()) {
    if (!named) return nullptr;
    return absl::FailedPreconditionError(
        absl::StrCat("--nccl ", nccl, ": the device is no GPU that forms groups by it"));
  }
  absl::StatusOr<std::unique_ptr<NcclApi>> opened =
      OpenNccl({named ? nccl : std::string(kNcclLibrary)});
  if (opened.ok()) {
    const int version = (*opened)->version();
    Log(Severity::kInfo,
        absl::StrCat("groups with other GPUs are formed over NCCL ", version / 10000, ".",
                     version / 100 % 100, ".", version % 100));
    return opened;
  }
  if (named) {
    return absl::FailedPreconditionError(
        absl::StrCat("--nccl ", nccl, ": ", opened.status().message()));
  }
  Log(Severity::kInfo,
      absl::StrCat(opened.status().message(), "; groups with other GPUs go through the hosts"));
  return nullptr;
}

// Nothing when no peak is known: a share of a guess would be none.
void AddPeak(prometheus::Registry& registry, double stated, const Accelerator* device) {
  const double flops = stated > 0 || device == nullptr ? stated : KnownPeakFlops(device->model());
  if (flops <= 0) return;
  prometheus::BuildGauge()
      .Name("sherd_device_peak_flops")
      .Help(
          "FLOP/s that the device can do at most, as stated by --peak-flops or known of its model.")
      .Register(registry)
      .Add({})
      .Set(flops);
}

// Ends the process; returns only when the worker could not start.
absl::Status RunWorker(WorkerFlags flags) {
  SetLogProgram(absl::StrCat("worker ", flags.device));
  MapLargeHeapBlocks();
  RaiseDescriptorLimit();
  // A child was started through a link in /proc that would be its name in process lists.
  prctl(PR_SET_NAME, kWorkerProgram);
  SHERD_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(flags.device));
  SHERD_RETURN_IF_ERROR(CheckCoordinator(flags));
  SHERD_RETURN_IF_ERROR(PrepareRoots(flags));
  SHERD_ASSIGN_OR_RETURN(const absl::Duration connect_timeout, ParseTimeout(flags.connect_timeout));
  SHERD_ASSIGN_OR_RETURN(const double peak_flops, ParsePeakFlops(flags.peak_flops));
  SHERD_ASSIGN_OR_RETURN(const OwnDevice device, OpenOwnDevice(choice, flags.device_library.empty()
                                                                           ? DefaultDeviceLibrary()
                                                                           : flags.device_library));
  flags.device = device.name;
  SetLogProgram(absl::StrCat("worker ", flags.device));
  if (!device.remark.empty()) Log(Severity::kInfo, device.remark);
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<NcclApi> nccl,
                         OpenNcclFor(device.accelerator.get(), flags.nccl));
  const auto registry = std::make_shared<prometheus::Registry>();
  AddBuildInfo(*registry, "worker");
  AddPeak(*registry, peak_flops, device.accelerator.get());
  std::unique_ptr<MetricsServer> metrics_server;
  if (!flags.metrics.empty()) {
    SHERD_RETURN_IF_ERROR(CheckAddress("--metrics", flags.metrics));
    SHERD_ASSIGN_OR_RETURN(metrics_server, MetricsServer::Start(flags.metrics, registry,
                                                                {{"output", OutputRootOf(flags)}}));
    Log(Severity::kInfo, absl::StrCat("serving /metrics on port ", metrics_server->port()));
  }
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<HealthServer> health, StartHealth(flags));
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<DataListener> listener, BindListener(flags));

  HoldingStore holdings;
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<HoldingServer> holding_server,
                         HoldingServer::Start(*listener, holdings));
  const TrainerOptions trainer_options{
      .data_root = flags.data_root,
      .output_root = flags.output_root,
      .threads = flags.threads > 0 ? flags.threads : HostCores(),
  };
  DeviceTrainers trainers(
      device.accelerator.get(), [&](const v1::Assignment& assignment, Accelerator* accelerator) {
        TrainerOptions of_device = trainer_options;
        of_device.accelerator = accelerator;
        of_device.nccl = nccl.get();
        return Trainer::Make(assignment, of_device, *listener, holdings, *registry);
      });
  AgentOptions options;
  options.identity = IdentityOf(flags, *listener);
  if (device.accelerator != nullptr) {
    options.identity.set_numerics_fingerprint(absl::StrCat(
        options.identity.numerics_fingerprint(), "; ", device.accelerator->numerics_fingerprint()));
    options.identity.set_memory_bytes(device.accelerator->memory_bytes());
    v1::Gpu& gpu = *options.identity.mutable_gpu();
    gpu.set_id(device.accelerator->unique_id());
    gpu.set_nccl_version(nccl == nullptr ? 0 : nccl->version());
    gpu.set_address(listener->network_address());
  }
  if (!options.identity.network_address().empty()) {
    Log(Severity::kInfo,
        absl::StrCat("workers of other hosts come to ", options.identity.network_address()));
  }
  options.session.coordinator = flags.coordinator;
  options.session.security = flags.security;
  options.session.connect_timeout = connect_timeout;
  options.make_trainer = [&](const v1::Assignment& assignment) {
    return trainers.Make(assignment);
  };
  options.inspect = [&](const v1::InspectData& request) {
    return InspectJob(request, trainer_options);
  };
  options.holdings = &holdings;
  options.metrics = registry;
  options.on_registered = [&health, tell = flags.tell_registered](bool registered) {
    if (health != nullptr) health->Set(kReady, registered);
    if (tell) TellRegistered(kHandedOver, registered);
  };

  std::shared_ptr<GpuMetrics> gpu_metrics;
  if (metrics_server != nullptr && device.accelerator != nullptr) {
    GpuWatch::Options watch{.pci_address = device.accelerator->pci_address()};
    if (!flags.nvml_library.empty()) watch.library = flags.nvml_library;
    gpu_metrics = std::make_shared<GpuMetrics>(device.name, std::move(watch));
    metrics_server->Add(gpu_metrics);
  }

  Agent agent(std::move(options));
  trainers.set_leave([&agent](absl::string_view reason) { agent.RequestLeave(reason); });
  const SignalWatcher watcher([&agent, asked = false](const char* signal) mutable {
    if (std::exchange(asked, true)) _exit(kExitRefused);  // asked twice: at once
    // Ctrl-C is a person who wants it to end, SIGTERM a notice.
    if (absl::string_view(signal) == "SIGTERM") {
      agent.RequestLeave(signal);
    } else {
      agent.RequestStop(signal);
    }
  });
  const int code = trainers.ExitCode(agent.Run());
  // All that was to be said is said. A trainer that does not end would hold up every destructor,
  // and the metrics server takes seconds to close; the kernel does not.
  _exit(code);
}

absl::StatusOr<int> RunSupervisor(const WorkerFlags& flags) {
  SetLogProgram("supervisor");
  SHERD_ASSIGN_OR_RETURN(const DeviceSlots slots, ParseDevices(flags.devices, HostCores()));
  SHERD_RETURN_IF_ERROR(CheckCoordinator(flags));
  SHERD_RETURN_IF_ERROR(ParseTimeout(flags.connect_timeout).status());
  SHERD_RETURN_IF_ERROR(ParsePeakFlops(flags.peak_flops).status());
  SHERD_RETURN_IF_ERROR(PrepareRoots(flags));
  const int threads = flags.threads > 0 ? flags.threads : std::max(1, HostCores() / slots.count);
  std::vector<std::string> metrics(slots.count);
  SupervisorOptions options;
  for (size_t slot = 0; slot < metrics.size(); ++slot) {
    options.workers.push_back(WorkerIdOf(flags, slots.Device(slot)));
    if (!flags.metrics.empty()) {
      SHERD_ASSIGN_OR_RETURN(metrics[slot], ChildAddress("--metrics", flags.metrics, slot));
    }
  }
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<HealthServer> health, StartHealth(flags));
  ExitReporter reporter(flags.coordinator, flags.security);
  options.program = "/proc/self/exe";
  options.arguments = [&](size_t slot, Incarnation incarnation) {
    return ChildArguments(flags, threads, metrics[slot], slots.Device(slot), incarnation);
  };
  options.report_exit = [&reporter](v1::ReportExitRequest request) {
    reporter.Report(std::move(request));
  };
  options.on_ready = [&health](bool ready) {
    if (health != nullptr) health->Set(kReady, ready);
  };
  Supervisor supervisor(std::move(options));
  const SignalWatcher watcher([&supervisor](const char* signal) {
    Log(Severity::kInfo, absl::StrCat("leaving: ", signal));
    supervisor.RequestStop();
  });
  return supervisor.Run();
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) {
  const pid_t parent = getppid();
  // Whoever reads checkpoints or data lives here, where the model is; the `sherd` command calls it.
  const absl::string_view command = argc > 1 ? argv[1] : "";
  if (command == "sample") return sherd::SampleMain(argc - 1, argv + 1);
  if (command == "eval") return sherd::EvaluateMain(argc - 1, argv + 1);
  if (command == "checkpoints") return sherd::CheckpointsMain(argc - 1, argv + 1);
  if (command == "import") return sherd::ImportMain(argc - 1, argv + 1);
  if (command == "export") return sherd::ExportMain(argc - 1, argv + 1);
  if (command == "data") {
    return sherd::DataMain(
        argc - 1, argv + 1,
        {sherd::DeclareDataTokenize, sherd::DeclareDataInfo, sherd::DeclareDataHead});
  }
  sherd::BlockSignals();
  sherd::WorkerFlags flags;
  CLI::App app("Trains one device's share of the jobs that a coordinator assigns.",
               sherd::kWorkerProgram);
  sherd::DeclareFlags(app, flags);
  sherd::AddManual(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : sherd::kExitUsage;
  }
  if (flags.exit_with_parent) sherd::ExitWithParent(parent);
  const absl::StatusOr<int> code =
      flags.devices.empty() ? sherd::RunWorker(flags) : sherd::RunSupervisor(flags);
  if (code.ok()) return *code;
  std::fprintf(stderr, "sherd-worker: %s\n", std::string(code.status().message()).c_str());
  return absl::IsInvalidArgument(code.status()) ? sherd::kExitUsage : sherd::kExitRefused;
}
