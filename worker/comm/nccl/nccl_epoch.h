#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/device_stream.h"
#include "worker/comm/deadline.h"
#include "worker/comm/nccl/nccl_api.h"
#include "worker/comm/nccl/nccl_thread.h"

namespace sherd {

// How a process ends whose NCCL communicators cannot be aborted: kExitStuck of the worker, whose
// supervisor starts it again.
inline constexpr int kExitNcclStuck = 70;
// Says why on stderr and ends the process with kExitNcclStuck at once: no destructor runs, since
// any of them might wait for what hangs.
[[noreturn]] void ExitNcclStuck(absl::string_view why);

// A process's NCCL communicators of one epoch of a job: one thread makes all their calls, and all
// are aborted together.
//
//   Join ──ready──> Launch, Check … ──Leave──> destroyed
//     └────────────────┴── Abort ──> aborted: inside one ncclGroupStart/End, on a helper's thread
//
// Abort ends what waits in any of the calls below with kAborted. When within the deadline the
// aborts have not returned, a call of NCCL has not, or work on the device goes on, exit_hard is
// called.
//
// Errors of calls: kAborted after Abort, with its reason; kDeadlineExceeded; kUnavailable for
// NCCL's remote errors (a process or a connection that went away); kResourceExhausted for memory;
// kInternal for all others, each with the call's name and NCCL's words. Thread-safe.
class NcclEpoch {
 public:
  struct Options {
    // From Abort to the end of everything.
    absl::Duration abort_deadline = absl::Milliseconds(500);
    // Does not return, but in tests. On a thread of its own, at most once.
    std::function<void(absl::string_view why)> exit_hard = ExitNcclStuck;
  };
  // `api` and `device` outlive it.
  NcclEpoch(NcclApi& api, StreamDevice& device, Options options);
  // All communicators have left or been aborted.
  ~NcclEpoch();
  NcclEpoch(const NcclEpoch&) = delete;

  NcclApi& api() { return api_; }
  StreamDevice& device() { return device_; }

  // Waits a moment, at most that long; an error when there is no more to wait for.
  using Patience = std::function<absl::Status(absl::Duration)>;

  // A new one each time.
  absl::StatusOr<NcclUniqueId> NewUniqueId(const Deadline& deadline);
  // Becomes `rank` of the `size` that come with this id, and returns when NCCL says that all have.
  absl::StatusOr<NcclComm> Join(const NcclUniqueId& id, int size, int rank, const std::string& name,
                                const Deadline& deadline, const Patience& patience);
  // Makes `calls` as one group, and returns when they are enqueued on their streams.
  using Calls = std::function<NcclResult(NcclApi& api)>;
  absl::Status Launch(NcclComm comm, Calls calls, const Deadline& deadline,
                      const Patience& patience);
  // NCCL asks that all ranks launch in one order, also what is of different communicators. Whoever
  // has operations done for it takes a turn for each, and launches one when those before it have
  // passed theirs on. AwaitTurn ends with the epoch, and then nobody has a turn any more.
  int64_t TakeTurn() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitTurn(int64_t turn) const ABSL_LOCKS_EXCLUDED(mutex_);
  void PassTurn() ABSL_LOCKS_EXCLUDED(mutex_);
  // What NCCL has found out about the communicator since.
  absl::Status Check(NcclComm comm);
  // Ends a communicator on which nothing is under way, in order; aborts the epoch when that takes
  // longer than the deadline, as it may when other members do not end theirs.
  void Leave(NcclComm comm, const std::vector<void*>& registrations);

  // Device memory that NCCL can register. A call that does not come back aborts the epoch.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes, const Deadline& deadline);
  // After Leave or the abort. Returns when the memory is free, which may take as long as what the
  // device is still at.
  void Free(std::byte* memory);
  // Null where the library does not register this kind.
  absl::StatusOr<void*> Register(NcclComm comm, void* memory, int64_t bytes,
                                 const Deadline& deadline);

  // Aborts all communicators, those that are being joined too. Returns at once; the first reason
  // counts.
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // OK, or why the epoch has ended.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when all have been aborted. After Abort.
  void AwaitAborted() const ABSL_LOCKS_EXCLUDED(mutex_);

  // `listener` is called once at Abort, on the helper's thread. Forget returns when it is not
  // running and will not any more.
  int Listen(std::function<void(const absl::Status& reason)> listener);
  void Forget(int listener);

  // Work of a communicator that the device may be at. The abort has ended when there is none.
  class InFlight {
   public:
    explicit InFlight(NcclEpoch& epoch);
    ~InFlight();
    InFlight(const InFlight&) = delete;

   private:
    NcclEpoch& epoch_;
  };

 private:
  // `name`: what has not returned when the deadline passes.
  absl::Status Run(absl::string_view name, NcclThread::Call call, const Deadline& deadline);
  absl::Status StatusOf(NcclResult result, absl::string_view call, NcclComm comm);
  // Polls until what the communicator has been told to do is done.
  absl::Status AwaitReady(NcclComm comm, absl::string_view call, const Deadline& deadline,
                          const Patience& patience);
  // Between two calls of a communicator: the first may come back when an abort has freed it.
  absl::Status CheckNotTaken() const ABSL_LOCKS_EXCLUDED(mutex_);
  // On the NCCL thread. Add aborts one that comes too late for the abort of all.
  void Add(NcclComm comm) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(NcclComm comm) ABSL_LOCKS_EXCLUDED(mutex_);

  // nccl_abort.cc. The threads' loops: the helper's, and that of who watches it.
  void AbortWhenAsked() ABSL_LOCKS_EXCLUDED(mutex_);
  void ExitWhenStuck() ABSL_LOCKS_EXCLUDED(mutex_);
  void AbortAll() ABSL_LOCKS_EXCLUDED(mutex_);
  // False when the epoch ended without one.
  bool AwaitAbort() ABSL_LOCKS_EXCLUDED(mutex_);
  // Empty when the abort has ended by then, else what has not.
  std::string StillUnderWay(const Deadline& deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  NcclApi& api_;
  StreamDevice& device_;
  const Options options_;
  NcclThread thread_;
  mutable absl::Mutex mutex_;
  std::vector<NcclComm> comms_ ABSL_GUARDED_BY(mutex_);
  int64_t next_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;  // whose it is
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;    // comms_, to be aborted
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;  // they have been
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex listeners_mutex_;  // held while they run; never with mutex_
  std::map<int, std::function<void(const absl::Status&)>> listeners_
      ABSL_GUARDED_BY(listeners_mutex_);
  int next_listener_ ABSL_GUARDED_BY(listeners_mutex_) = 0;
  std::thread helper_;
  std::thread watch_;
};

}  // namespace sherd
