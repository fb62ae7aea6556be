#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "scripted_nccl.h"
#include "thread_device.h"
#include "worker/comm/communicator.h"
#include "worker/comm/data_link.h"
#include "worker/comm/nccl/nccl_communicator.h"
#include "worker/comm/nccl/nccl_epoch.h"

namespace sherd {

// Ranks of an epoch within this process, each with a device and an NcclEpoch of its own, over one
// ScriptedNccl.
class NcclRanks {
 public:
  explicit NcclRanks(int size);
  // Fails the test when a rule of NCCL was broken, or something was not given back. Communicators
  // are gone by then.
  ~NcclRanks();

  int size() const { return static_cast<int>(ranks_.size()); }
  ScriptedNccl& nccl() { return nccl_; }
  ThreadDevice& device(int rank) { return ranks_[static_cast<size_t>(rank)]->device; }
  NcclEpoch& epoch(int rank) { return *ranks_[static_cast<size_t>(rank)]->epoch; }
  DataListener& listener(int rank) { return *ranks_[static_cast<size_t>(rank)]->listener; }
  FormationAbort& abort(int rank) { return ranks_[static_cast<size_t>(rank)]->abort; }

  FormOptions& form() { return form_; }
  NcclOptions& options() { return options_; }
  using Formed = absl::StatusOr<std::unique_ptr<Communicator>>;
  Formed Form(const std::string& group, int rank) { return Form(group, rank, options_); }
  Formed Form(const std::string& group, int rank, const NcclOptions& options);
  // By rank, each on a thread of its own.
  std::vector<Formed> FormAll(const std::string& group);
  // The same where all have to succeed.
  std::vector<std::unique_ptr<Communicator>> MustForm(const std::string& group = "data:0");

  // What a rank's exit_hard was told; empty when it was not called.
  std::string exit(int rank) ABSL_LOCKS_EXCLUDED(mutex_);
  bool AwaitExit(int rank, absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Rank {
    ThreadDevice device;
    std::unique_ptr<NcclEpoch> epoch;
    std::unique_ptr<DataListener> listener;
    FormationAbort abort;
  };

  ScriptedNccl nccl_;
  FormOptions form_{.transport = Transport::kTcp, .arena_bytes = 1 << 20};
  NcclOptions options_{.reproducible = true, .piece_bytes = 64 << 10};
  absl::Mutex mutex_;
  std::vector<std::string> exits_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace sherd
