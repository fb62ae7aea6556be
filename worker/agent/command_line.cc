#include "worker/agent/command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/agent/identity.h"

namespace sherd {
namespace {

// More worker processes than any host has cores are a slip of the pen.
constexpr int kMostSlots = 1024;
constexpr int kMostPort = 65535;

// The port of "HOST:PORT"; -1 when it is none.
int PortOf(absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == absl::string_view::npos || colon == 0) return -1;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port)) return -1;
  return port < 0 || port > kMostPort ? -1 : port;
}

std::string HostPart(const WorkerFlags& flags) {
  return flags.name.empty() ? HostName() : flags.name;
}

}  // namespace

void DeclareFlags(CLI::App& app, WorkerFlags& flags) {
  app.set_version_flag("--version", "sherd-worker " SHERD_VERSION);
  app.add_option("--coordinator", flags.coordinator, "HOST:PORT of the coordinator")
      ->envname("SHERD_COORDINATOR")
      ->required();
  app.add_option("--device", flags.device,
                 "The device to own: cpu:INDEX, cuda:INDEX, or auto: the first GPU if there is one")
      ->capture_default_str();
  app.add_option("--device-library", flags.device_library,
                 "The back end for GPUs (default: libsherd_cuda.so beside this program)");
  app.add_option("--nccl", flags.nccl,
                 "NCCL, for groups with other GPUs: auto, none, or the library's file")
      ->capture_default_str();
  app.add_option("--nvml-library", flags.nvml_library,
                 "What a GPU's readings for /metrics come from (default: libnvidia-ml.so.1)");
  app.add_option("--devices", flags.devices,
                 "Supervise one worker process a device: cpu:COUNT for so many CPU slots, all for "
                 "one a core, cuda:COUNT for the first GPUs")
      ->excludes("--device");
  app.add_option("--name", flags.name, "This host's part of the worker id (default: host name)");
  app.add_option("--data-root", flags.data_root, "Jobs may read below this directory only");
  app.add_option("--output-root", flags.output_root, "Jobs may write below this directory only");
  app.add_option("--threads", flags.threads, "Compute threads a worker (default: cores / workers)")
      ->check(CLI::Range(1, 4096));
  app.add_option(
      "--metrics", flags.metrics,
      "HOST:PORT that serves /metrics; port 0: any; with --devices PORT, PORT+1, ... by worker");
  app.add_option(
      "--health", flags.health,
      "HOST:PORT that answers health checks in plain text: service \"\" lives, \"ready\" has a "
      "coordinator, with --devices each of its workers has; port 0: any");
  DeclareCallerSecurity(app, flags.security);
  app.add_option("--data-host", flags.data_host,
                 "The address of this host that workers of other hosts reach it by (default: the "
                 "one that faces the coordinator)");
  app.add_option("--connect-timeout", flags.connect_timeout,
                 "Give up when the coordinator cannot be reached for this long, as 30s; 0: never")
      ->capture_default_str();
  app.add_option("--peak-flops", flags.peak_flops,
                 "FLOP/s that a worker's device can do at most, as 989e12; what MFU is a share of "
                 "(default: of GPUs whose model is known, with dense bf16 products)");
  app.add_flag("--exit-with-parent", flags.exit_with_parent, "End when the parent process ends");
  app.add_option("--incarnation", flags.incarnation, "Chosen by the supervisor")->group("");
  app.add_flag("--tell-registered", flags.tell_registered, "Asked for by the supervisor")
      ->group("");
}

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text) {
  absl::Duration timeout;
  if (!absl::ParseDuration(text, &timeout) || timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--connect-timeout ", text, " is not a duration such as 30s, 500ms or 0"));
  }
  return timeout;
}

absl::StatusOr<double> ParsePeakFlops(const std::string& text) {
  double flops = 0;
  if (text.empty()) return flops;
  if (!absl::SimpleAtod(text, &flops) || !std::isfinite(flops) || flops <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--peak-flops ", text, " is not a number of FLOP/s, as 989e12"));
  }
  return flops;
}

absl::Status CheckAddress(absl::string_view flag, const std::string& address) {
  if (PortOf(address) >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", address, " is not HOST:PORT, as 127.0.0.1:7700"));
}

std::string DeviceSlots::Device(size_t slot) const { return absl::StrCat(kind, ":", slot); }

absl::StatusOr<DeviceSlots> ParseDevices(absl::string_view devices, int cores) {
  DeviceSlots slots{.count = cores};
  if (devices == "all") return slots;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(devices, absl::MaxSplits(':', 1));
  slots.kind = std::string(parts.first);
  const bool known = slots.kind == "cpu" || slots.kind == "cuda";
  if (!known || !absl::SimpleAtoi(parts.second, &slots.count) || slots.count < 1 ||
      slots.count > kMostSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices must be all, or cpu:COUNT or cuda:COUNT with 1 to ", kMostSlots,
                     " CPU slots or GPUs, as cpu:4"));
  }
  return slots;
}

absl::StatusOr<std::string> ChildAddress(absl::string_view flag, const std::string& address,
                                         size_t slot) {
  const int port = PortOf(address);
  const int mine = port <= 0 ? port : port + static_cast<int>(slot);
  if (mine < 0 || mine > kMostPort) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", address, " is not HOST:PORT with a port for each worker"));
  }
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), mine);
}

absl::Status PrepareRoots(const WorkerFlags& flags) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!flags.data_root.empty() && !fs::is_directory(flags.data_root, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--data-root ", fs::absolute(flags.data_root, error).string(),
                     " is not a directory; make it or name another"));
  }
  if (flags.output_root.empty()) return absl::OkStatus();
  fs::create_directories(flags.output_root, error);
  if (fs::is_directory(flags.output_root, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--output-root ", fs::absolute(flags.output_root, error).string(),
                   " is not a directory and cannot be made one; name another"));
}

WorkerId WorkerIdOf(const WorkerFlags& flags, const std::string& device) {
  return WorkerId(absl::StrCat(HostPart(flags), "/", device));
}

std::vector<std::string> ChildArguments(const WorkerFlags& flags, int threads,
                                        const std::string& metrics, const std::string& device,
                                        Incarnation incarnation) {
  std::vector<std::string> arguments = {kWorkerProgram,
                                        "--coordinator",
                                        flags.coordinator,
                                        "--device",
                                        device,
                                        "--name",
                                        HostPart(flags),
                                        "--threads",
                                        absl::StrCat(threads),
                                        "--connect-timeout",
                                        flags.connect_timeout,
                                        "--incarnation",
                                        absl::StrCat(incarnation.value()),
                                        "--tell-registered"};
  const auto add = [&arguments](const char* flag, const std::string& value) {
    if (value.empty()) return;
    arguments.push_back(flag);
    arguments.push_back(value);
  };
  add("--device-library", flags.device_library);
  add("--nccl", flags.nccl);
  add("--nvml-library", flags.nvml_library);
  add("--data-root", flags.data_root);
  add("--output-root", flags.output_root);
  add("--metrics", metrics);
  add("--tls-ca", flags.security.ca);
  add("--tls-certificate", flags.security.certificate);
  add("--tls-key", flags.security.key);
  add("--tls-server-name", flags.security.server_name);
  add("--token-file", flags.security.token);
  if (flags.security.insecure) arguments.push_back("--insecure");
  add("--data-host", flags.data_host);
  add("--peak-flops", flags.peak_flops);
  return arguments;
}

}  // namespace sherd
