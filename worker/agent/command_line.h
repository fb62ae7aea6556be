#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/rpc/security.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sherd {

inline constexpr char kWorkerProgram[] = "sherd-worker";

// The command line of a worker or of a node's supervisor.
struct WorkerFlags {
  std::string coordinator;
  SecurityOptions security;
  std::string device = "cpu:0";
  std::string device_library;
  std::string nccl = "auto";
  std::string nvml_library;
  std::string devices;
  std::string name;
  std::string data_root;
  std::string output_root;
  std::string metrics;
  std::string health;
  std::string data_host;
  std::string connect_timeout = "0";
  std::string peak_flops;
  int threads = 0;
  uint64_t incarnation = 0;
  bool exit_with_parent = false;
  // Of a supervisor's child: it says on kHandedOver whether it has a coordinator.
  bool tell_registered = false;
};

// Adds the flags to `app`, which fills in `flags` when it parses.
void DeclareFlags(CLI::App& app, WorkerFlags& flags);

// Each returns kInvalidArgument with a sentence that names the flag and what would be right.

// Zero for "0": never give up.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text);
// FLOP/s, above 0; 0 for "": not stated.
absl::StatusOr<double> ParsePeakFlops(const std::string& text);
absl::Status CheckAddress(absl::string_view flag, const std::string& address);
// What --devices asks a supervisor for: one worker on each of the first `count` devices of a kind.
struct DeviceSlots {
  std::string kind = "cpu";
  int count = 0;
  // "cpu:0".
  std::string Device(size_t slot) const;
};
// `cores` CPU slots for "all".
absl::StatusOr<DeviceSlots> ParseDevices(absl::string_view devices, int cores);
// Where a supervisor's child serves what `flag` gives an address for: the next port for the next
// slot, or any for each.
absl::StatusOr<std::string> ChildAddress(absl::string_view flag, const std::string& address,
                                         size_t slot);

// Makes the output root. Not OK when it cannot be made or the data root is no directory: every job
// would be refused for a slip of whoever started the worker. kFailedPrecondition.
absl::Status PrepareRoots(const WorkerFlags& flags);

// "HOST/cpu:0".
WorkerId WorkerIdOf(const WorkerFlags& flags, const std::string& device);
// What a supervisor calls the worker of a device with, its name first; `metrics` is the child's. It
// answers health checks itself.
std::vector<std::string> ChildArguments(const WorkerFlags& flags, int threads,
                                        const std::string& metrics, const std::string& device,
                                        Incarnation incarnation);

}  // namespace sherd
