#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/nccl/nccl_api.h"

namespace sherd {

// Which of NCCL's calls a fault is in; kKernel is what the device does.
enum class NcclCall {
  kGetUniqueId,
  kInit,
  kAsyncError,
  kGroupStart,
  kGroupEnd,
  kRegister,
  kDeregister,
  kMemAlloc,
  kFinalize,
  kDestroy,
  kAbort,
  kKernel
};

struct NcclFault {
  NcclCall call;
  // Of a communicator's calls: by whom; -1: by anybody.
  int rank = -1;
  // kHang: until the communicator is aborted, or as kStubborn where it has none. kStubborn: until
  // Release. kFail: the call has `result`; a kernel hangs, and kAsyncError says why. kDelay: it is
  // in progress for `polls` looks at it, or returns as many milliseconds later where it is never in
  // progress.
  enum { kHang, kStubborn, kFail, kDelay } what = kHang;
  NcclResult result = NcclResult::kInternalError;
  int polls = 0;
  // The first calls that are spared, and then how many are not.
  int skip = 0;
  int times = 1;
};

// What ScriptedNccl asks of the devices that its callers use: ThreadDevices, unless others are
// given. Thread-safe.
class ScriptedDevices {
 public:
  virtual ~ScriptedDevices() = default;
  // In the stream's order; `kernel` waits for those of other devices.
  virtual void Enqueue(CUstream_st* stream, std::function<void()> kernel);
  // Of the calling thread's device; null: there is none left.
  virtual void* Allocate(size_t bytes);
  virtual void Free(void* memory);
};

// A stand-in for NCCL's library, within one process: ranks are whoever calls, devices are
// ThreadDevices or those given, data really move. It has NCCL's habits: members wait for each
// other, a mismatched call hangs, nothing ends a kernel but its end or an abort, and an abort frees
// the communicator. It hangs, fails and delays as it is told, and writes down where its caller
// breaks NCCL's rules.
class ScriptedNccl final : public NcclApi {
 public:
  explicit ScriptedNccl(
      std::unique_ptr<ScriptedDevices> devices = std::make_unique<ScriptedDevices>());
  ~ScriptedNccl() override;

  void Inject(const NcclFault& fault) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called once, at the end of the rank's next CommRegister.
  void WhenNextRegistered(int rank, std::function<void()> call) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    when_registered_[rank] = std::move(call);
  }
  // Lets go all that hangs stubbornly, now and later.
  void Release() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether a call hangs, or a kernel.
  bool AwaitHang(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);
  void set_version(int version) { version_ = version; }

  // Rules broken: calls of a communicator from two threads, or after its end, ids used twice…
  std::vector<std::string> violations() const ABSL_LOCKS_EXCLUDED(mutex_);
  int live_comms() const ABSL_LOCKS_EXCLUDED(mutex_);
  int live_allocations() const ABSL_LOCKS_EXCLUDED(mutex_);
  int ids_made() const ABSL_LOCKS_EXCLUDED(mutex_);
  int calls(NcclCall call) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a rank: the names of the communicators that it launched kernels of, one after another.
  std::vector<std::string> launches(int rank) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The names of the communicators aborted in each group of calls.
  std::vector<std::vector<std::string>> abort_groups() const ABSL_LOCKS_EXCLUDED(mutex_);

  int version() override { return version_; }
  std::string Text(NcclResult result, NcclComm comm) override;
  NcclResult GetUniqueId(NcclUniqueId* id) override;
  NcclResult CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank,
                          const char* name) override;
  NcclResult CommGetAsyncError(NcclComm comm, NcclResult* error) override;
  NcclResult CommFinalize(NcclComm comm) override;
  NcclResult CommDestroy(NcclComm comm) override;
  NcclResult CommAbort(NcclComm comm) override;
  NcclResult CommRegister(NcclComm comm, void* memory, size_t bytes, void** handle) override;
  NcclResult CommDeregister(NcclComm comm, void* handle) override;
  NcclResult MemAlloc(void** memory, size_t bytes) override;
  NcclResult MemFree(void* memory) override;
  NcclResult GroupStart() override;
  NcclResult GroupEnd() override;
  NcclResult AllGather(const void* send, void* receive, size_t count, NcclType type, NcclComm comm,
                       CUstream_st* stream) override;
  NcclResult ReduceScatter(const void* send, void* receive, size_t count, NcclType type,
                           NcclComm comm, CUstream_st* stream) override;
  NcclResult AllReduce(const void* send, void* receive, size_t count, NcclType type, NcclComm comm,
                       CUstream_st* stream) override;
  NcclResult Broadcast(const void* send, void* receive, size_t count, NcclType type, int root,
                       NcclComm comm, CUstream_st* stream) override;
  NcclResult Send(const void* data, size_t count, NcclType type, int peer, NcclComm comm,
                  CUstream_st* stream) override;
  NcclResult Recv(void* data, size_t count, NcclType type, int peer, NcclComm comm,
                  CUstream_st* stream) override;

  // Of scripted_kernels.cc: what one call puts into a kernel.
  struct Item {
    enum class Kind { kAllGather, kReduceScatter, kAllReduce, kBroadcast, kSend, kRecv } kind;
    const std::byte* send = nullptr;
    std::byte* receive = nullptr;
    size_t count = 0;
    NcclType type = NcclType::kByte;
    int peer = -1;  // or root

    size_t bytes() const;
    bool Matches(const Item& other) const;
  };
  struct Clique;

 private:
  struct Kernel {
    CUstream_st* stream = nullptr;
    std::vector<Item> items;
  };

  std::optional<NcclFault> FaultIn(NcclCall call, int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hangs as the fault says; false when it does not say so.
  bool Hang(const NcclFault& fault, NcclComm comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets as many milliseconds pass as the fault says, or fewer where Release comes first.
  void TakeTime(const NcclFault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a call that is never in progress: hangs or takes its time as its fault says. The result of
  // one that fails.
  std::optional<NcclResult> Undergo(NcclCall call, int rank, NcclComm comm)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A call of a communicator: counts it and watches the rules.
  void Called(NcclCall call, NcclComm comm, bool by_owner = true)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NcclResult Add(const Item& item, NcclComm comm, CUstream_st* stream);
  NcclResult EndAborts(const std::vector<NcclComm>& comms) ABSL_LOCKS_EXCLUDED(mutex_);
  NcclResult StartKernels(NcclComm comm, std::vector<Kernel> kernels)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(NcclComm comm, const Kernel& kernel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // scripted_kernels.cc, on a stream's thread.
  void RunKernel(NcclComm comm, const std::vector<Item>& items) ABSL_LOCKS_EXCLUDED(mutex_);
  // False when the communicator was aborted meanwhile.
  bool Meet(NcclComm comm, const Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Receive(NcclComm comm, const Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<ScriptedDevices> devices_;
  int version_ = 22809;
  mutable absl::Mutex mutex_;
  std::deque<NcclFault> faults_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::function<void()>> when_registered_ ABSL_GUARDED_BY(mutex_);  // by rank
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  int hanging_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mutex_);
  std::map<NcclCall, int> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Clique>> cliques_ ABSL_GUARDED_BY(mutex_);  // by id
  // All that there were: a call after the end is to be seen, not to crash.
  std::vector<std::unique_ptr<ncclComm>> comms_ ABSL_GUARDED_BY(mutex_);
  std::map<std::byte*, size_t> allocations_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::vector<std::string>> launches_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::vector<std::vector<std::string>> abort_groups_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd

// What a handle points at.
struct ncclComm {
  std::string name;
  int rank = -1;
  std::shared_ptr<sherd::ScriptedNccl::Clique> clique;
  std::thread::id owner;
  bool ended = false;
  bool aborted = false;
  int polls = 0;  // looks at it for which it is in progress
  bool launching = false;
  std::function<void()> after_polls;
  sherd::NcclResult error = sherd::NcclResult::kSuccess;
  int kernels = 0;  // enqueued and not ended
  int64_t meetings = 0;
  std::set<void*> registrations;
};

// Of one id: who has come, and what they do together.
struct sherd::ScriptedNccl::Clique {
  struct Meeting {
    std::vector<const Item*> calls;  // by rank
    bool done = false;
  };
  struct Letter {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    bool* taken = nullptr;
  };
  int size = 0;
  std::set<int> joined;
  std::map<int64_t, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<Letter>> letters;  // by sender and receiver
};
