#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/communicator.h"
#include "worker/comm/data_link.h"

namespace sherd {

// One rank's part of a probe: what its machine and links do while all ranks do the same. Every rank
// of the world makes the same calls. Nothing of it is left when it is destroyed. Not thread-safe
// but for Abort.
class MachineProbe {
 public:
  // `assignment` asks for the probe and names the address of every rank; `threads` compute. Both
  // references outlive it.
  MachineProbe(const v1::Assignment& assignment, int threads, DataListener& listener);

  // Forms the groups that the assignment asks for, adjacent ranks and ranks at equal distance,
  // which share memory where the assignment says that all members do; calls `ready`; then measures
  // for about a second: products of matrices as large as the model's, copies of a large buffer,
  // collectives of a small and a large message in every group. Medians of a few repetitions, the
  // first left out. Errors of FormCommunicator and of Communicator::Wait; after one no peer waits
  // for this rank. Call once.
  absl::StatusOr<v1::TrialReport> Run(FormationAbort& abort, absl::FunctionRef<void()> ready);
  // From any thread: whatever waits ends with kAborted.
  void Abort(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // After an error: the rank that went away or failed, when that is why; -1 else.
  int lost_peer() const;
  // From any thread: what is measured.
  std::string operation() const;

 private:
  struct Group {
    int64_t size = 1;
    int64_t stride = 1;
    std::unique_ptr<Communicator> comm;
  };

  absl::Status CheckSizes() const;
  absl::Status Form(FormationAbort& abort);
  absl::StatusOr<v1::TrialReport> Measure();
  std::vector<int> MembersOf(int64_t size, int64_t stride) const;
  absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const std::vector<int>& members,
                                                          FormationAbort& abort);
  // Returns when every rank has come here.
  absl::Status Meet();
  absl::Status MeasureMatmul(v1::TrialReport& report);
  absl::Status MeasureCopy(v1::TrialReport& report);
  absl::Status MeasureGroup(const Group& group, v1::TrialReport& report);

  const v1::Assignment& assignment_;
  const int threads_;
  DataListener& listener_;
  std::atomic<const char*> operation_{"forming the groups of a probe"};
  std::atomic<bool> aborted_{false};
  mutable absl::Mutex mutex_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  // Grows while they form, under the lock; the world's comes last.
  std::vector<Group> groups_;
  int lost_in_forming_ = -1;  // by rank of the world
};

}  // namespace sherd
