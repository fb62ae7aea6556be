#include "scripted_nccl.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "thread_device.h"

namespace sherd {
namespace {

// Calls between GroupStart and GroupEnd, as NCCL has them, of the thread.
struct OpenGroup {
  int depth = 0;
  std::vector<std::pair<NcclComm, std::pair<CUstream_st*, ScriptedNccl::Item>>> calls;
  std::vector<NcclComm> aborts;
};
thread_local OpenGroup open_group;

}  // namespace

void ScriptedDevices::Enqueue(CUstream_st* stream, std::function<void()> kernel) {
  ThreadStream::Of(stream).Enqueue(std::move(kernel));
}

void* ScriptedDevices::Allocate(size_t bytes) {
  constexpr size_t kAlignment = 4096;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, whole);
  std::memset(memory, 0xa5, whole);
  return memory;
}

void ScriptedDevices::Free(void* memory) { std::free(memory); }

ScriptedNccl::ScriptedNccl(std::unique_ptr<ScriptedDevices> devices)
    : devices_(std::move(devices)) {}
ScriptedNccl::~ScriptedNccl() = default;

void ScriptedNccl::Inject(const NcclFault& fault) {
  absl::MutexLock lock(&mutex_);
  faults_.push_back(fault);
}

void ScriptedNccl::Release() {
  absl::MutexLock lock(&mutex_);
  released_ = true;
}

bool ScriptedNccl::AwaitHang(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  const auto hangs = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return hanging_ > 0; };
  return mutex_.AwaitWithTimeout(absl::Condition(&hangs), patience);
}

std::vector<std::string> ScriptedNccl::launches(int rank) const {
  absl::MutexLock lock(&mutex_);
  const auto found = launches_.find(rank);
  return found == launches_.end() ? std::vector<std::string>() : found->second;
}

std::vector<std::string> ScriptedNccl::violations() const {
  absl::MutexLock lock(&mutex_);
  return violations_;
}

int ScriptedNccl::live_comms() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(
      std::count_if(comms_.begin(), comms_.end(), [](const auto& comm) { return !comm->ended; }));
}

int ScriptedNccl::live_allocations() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(allocations_.size());
}

int ScriptedNccl::ids_made() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(cliques_.size());
}

int ScriptedNccl::calls(NcclCall call) const {
  absl::MutexLock lock(&mutex_);
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

std::vector<std::vector<std::string>> ScriptedNccl::abort_groups() const {
  absl::MutexLock lock(&mutex_);
  return abort_groups_;
}

std::optional<NcclFault> ScriptedNccl::FaultIn(NcclCall call, int rank) {
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (fault->call != call || (fault->rank >= 0 && fault->rank != rank)) continue;
    if (fault->skip-- > 0) return std::nullopt;
    const NcclFault found = *fault;
    if (--fault->times == 0) faults_.erase(fault);
    return found;
  }
  return std::nullopt;
}

bool ScriptedNccl::Hang(const NcclFault& fault, NcclComm comm) {
  if (fault.what != NcclFault::kHang && fault.what != NcclFault::kStubborn) return false;
  const bool ends_by_abort = fault.what == NcclFault::kHang && comm != nullptr;
  const auto free = [this, comm, ends_by_abort]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return released_ || (ends_by_abort && comm->aborted);
  };
  ++hanging_;
  mutex_.Await(absl::Condition(&free));
  --hanging_;
  return true;
}

std::optional<NcclResult> ScriptedNccl::Undergo(NcclCall call, int rank, NcclComm comm) {
  const auto fault = FaultIn(call, rank);
  if (!fault.has_value() || Hang(*fault, comm)) return std::nullopt;
  if (fault->what == NcclFault::kFail) return fault->result;
  TakeTime(*fault);
  return std::nullopt;
}

void ScriptedNccl::TakeTime(const NcclFault& fault) {
  const auto released = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return released_; };
  mutex_.AwaitWithTimeout(absl::Condition(&released), absl::Milliseconds(fault.polls));
}

void ScriptedNccl::Called(NcclCall call, NcclComm comm, bool by_owner) {
  ++calls_[call];
  if (comm == nullptr) return;
  const std::string what = absl::StrCat("call ", static_cast<int>(call), " of ", comm->name);
  if (comm->ended) violations_.push_back(what + " after its end");
  if (by_owner && comm->owner != std::this_thread::get_id()) {
    violations_.push_back(what + " on another thread");
  }
}

std::string ScriptedNccl::Text(NcclResult result, NcclComm comm) {
  return absl::StrCat("scripted error ", static_cast<int>(result));
}

NcclResult ScriptedNccl::GetUniqueId(NcclUniqueId* id) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kGetUniqueId, nullptr);
  if (const auto failed = Undergo(NcclCall::kGetUniqueId, -1, nullptr)) return *failed;
  const std::string name = absl::StrCat("id ", cliques_.size());
  std::memcpy(id->bytes.data(), name.data(), name.size());
  cliques_.emplace(std::string(id->bytes.data()), std::make_shared<Clique>());
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank,
                                      const char* name) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kInit, nullptr);
  const auto fault = FaultIn(NcclCall::kInit, rank);
  if (fault.has_value()) {
    if (fault->what == NcclFault::kFail) return fault->result;
    Hang(*fault, nullptr);
  }
  const auto found = cliques_.find(std::string(id.bytes.data()));
  if (found == cliques_.end()) {
    violations_.push_back("an id that nobody made");
    return NcclResult::kInvalidArgument;
  }
  Clique& clique = *found->second;
  if (clique.size != 0 && (clique.size != size || clique.joined.contains(rank))) {
    violations_.push_back(absl::StrCat(found->first, " is used again by rank ", rank));
    return NcclResult::kInvalidArgument;
  }
  clique.size = size;
  clique.joined.insert(rank);
  auto made = std::make_unique<ncclComm>();
  made->name = name;
  made->rank = rank;
  made->clique = found->second;
  made->owner = std::this_thread::get_id();
  if (fault.has_value() && fault->what == NcclFault::kDelay) made->polls = fault->polls;
  *comm = made.get();
  comms_.push_back(std::move(made));
  return NcclResult::kInProgress;
}

NcclResult ScriptedNccl::CommGetAsyncError(NcclComm comm, NcclResult* error) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kAsyncError, comm);
  if (const auto failed = Undergo(NcclCall::kAsyncError, comm->rank, comm)) comm->error = *failed;
  *error = comm->error;
  if (comm->error != NcclResult::kSuccess) return NcclResult::kSuccess;
  const bool all_here = static_cast<int>(comm->clique->joined.size()) == comm->clique->size;
  if (!all_here || comm->polls > 0) {
    --comm->polls;
    *error = NcclResult::kInProgress;
    return NcclResult::kSuccess;
  }
  if (auto then = std::exchange(comm->after_polls, nullptr); then != nullptr) then();
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::CommFinalize(NcclComm comm) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kFinalize, comm);
  if (comm->kernels > 0) violations_.push_back(comm->name + " finalized at work");
  if (const auto fault = FaultIn(NcclCall::kFinalize, comm->rank)) {
    if (fault->what == NcclFault::kFail) return fault->result;
    comm->polls = fault->polls;
    Hang(*fault, comm);
  }
  return NcclResult::kInProgress;
}

NcclResult ScriptedNccl::CommDestroy(NcclComm comm) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kDestroy, comm);
  if (!comm->registrations.empty()) violations_.push_back(comm->name + " destroyed registered");
  const auto failed = Undergo(NcclCall::kDestroy, comm->rank, comm);
  // Also when it fails: NCCL does not say what is left then.
  comm->ended = true;
  if (failed.has_value()) return *failed;
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::CommAbort(NcclComm comm) {
  {
    absl::MutexLock lock(&mutex_);
    Called(NcclCall::kAbort, comm, /*by_owner=*/false);
  }
  if (open_group.depth == 0) return EndAborts({comm});
  open_group.aborts.push_back(comm);
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::EndAborts(const std::vector<NcclComm>& comms) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> names;
  for (NcclComm comm : comms) {
    names.push_back(comm->name);
    comm->aborted = true;
  }
  abort_groups_.push_back(names);
  for (NcclComm comm : comms) {
    if (const auto fault = FaultIn(NcclCall::kAbort, comm->rank)) Hang(*fault, nullptr);
    const auto quiet = [comm] { return comm->kernels == 0; };
    mutex_.Await(absl::Condition(&quiet));
    comm->after_polls = nullptr;
    comm->ended = true;
  }
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::CommRegister(NcclComm comm, void* memory, size_t bytes, void** handle) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kRegister, comm);
  if (const auto failed = Undergo(NcclCall::kRegister, comm->rank, comm)) return *failed;
  const auto found = allocations_.find(static_cast<std::byte*>(memory));
  if (found == allocations_.end() || found->second < bytes) {
    violations_.push_back("registered memory that is not NCCL's");
  }
  comm->registrations.insert(memory);
  *handle = memory;
  if (const auto call = when_registered_.extract(comm->rank)) {
    mutex_.Unlock();
    call.mapped()();
    mutex_.Lock();
  }
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::CommDeregister(NcclComm comm, void* handle) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kDeregister, comm);
  if (const auto failed = Undergo(NcclCall::kDeregister, comm->rank, comm)) return *failed;
  if (comm->registrations.erase(handle) == 0) violations_.push_back("deregistered a stranger");
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::MemAlloc(void** memory, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  Called(NcclCall::kMemAlloc, nullptr);
  if (const auto failed = Undergo(NcclCall::kMemAlloc, -1, nullptr)) return *failed;
  *memory = devices_->Allocate(bytes);
  if (*memory == nullptr) return NcclResult::kUnhandledCudaError;
  allocations_.emplace(static_cast<std::byte*>(*memory), bytes);
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::MemFree(void* memory) {
  if (memory == nullptr) return NcclResult::kSuccess;
  absl::MutexLock lock(&mutex_);
  for (const auto& comm : comms_) {
    if (!comm->ended && comm->registrations.contains(memory)) {
      violations_.push_back(comm->name + "'s memory freed while it is registered");
    }
  }
  if (allocations_.erase(static_cast<std::byte*>(memory)) == 0) {
    violations_.push_back("freed what is not allocated");
    return NcclResult::kInvalidArgument;
  }
  devices_->Free(memory);
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::GroupStart() {
  {
    absl::MutexLock lock(&mutex_);
    Called(NcclCall::kGroupStart, nullptr);
    if (const auto failed = Undergo(NcclCall::kGroupStart, -1, nullptr)) return *failed;
  }
  ++open_group.depth;
  return NcclResult::kSuccess;
}

NcclResult ScriptedNccl::GroupEnd() {
  SHERD_CHECK(open_group.depth > 0);
  if (--open_group.depth > 0) return NcclResult::kSuccess;
  const OpenGroup group = std::exchange(open_group, OpenGroup());
  if (!group.aborts.empty()) return EndAborts(group.aborts);
  // One kernel a communicator and stream.
  std::map<NcclComm, std::vector<Kernel>> kernels;
  for (const auto& [comm, call] : group.calls) {
    std::vector<Kernel>& of_comm = kernels[comm];
    const auto same_stream = [stream = call.first](const Kernel& kernel) {
      return kernel.stream == stream;
    };
    auto kernel = std::find_if(of_comm.begin(), of_comm.end(), same_stream);
    if (kernel == of_comm.end()) kernel = of_comm.insert(of_comm.end(), {call.first, {}});
    kernel->items.push_back(call.second);
  }
  absl::MutexLock lock(&mutex_);
  NcclResult result = NcclResult::kSuccess;
  for (auto& [comm, of_comm] : kernels) {
    const NcclResult started = StartKernels(comm, std::move(of_comm));
    if (started != NcclResult::kSuccess) result = started;
  }
  return result;
}

NcclResult ScriptedNccl::StartKernels(NcclComm comm, std::vector<Kernel> kernels) {
  Called(NcclCall::kGroupEnd, comm);
  launches_[comm->rank].push_back(comm->name);
  if (comm->after_polls != nullptr) violations_.push_back(comm->name + " called while in progress");
  const auto fault = FaultIn(NcclCall::kGroupEnd, comm->rank);
  if (fault.has_value()) {
    if (fault->what == NcclFault::kFail) return fault->result;
    if (Hang(*fault, comm)) return NcclResult::kSystemError;
    comm->polls = fault->polls;
    comm->after_polls = [this, comm, kernels]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      for (const Kernel& kernel : kernels) Enqueue(comm, kernel);
    };
    return NcclResult::kInProgress;
  }
  for (const Kernel& kernel : kernels) Enqueue(comm, kernel);
  return NcclResult::kSuccess;
}

void ScriptedNccl::Enqueue(NcclComm comm, const Kernel& kernel) {
  ++comm->kernels;
  devices_->Enqueue(kernel.stream, [this, comm, items = kernel.items] { RunKernel(comm, items); });
}

NcclResult ScriptedNccl::Add(const Item& item, NcclComm comm, CUstream_st* stream) {
  const bool alone = open_group.depth == 0;
  if (alone) GroupStart();
  open_group.calls.push_back({comm, {stream, item}});
  return alone ? GroupEnd() : NcclResult::kSuccess;
}

NcclResult ScriptedNccl::AllGather(const void* send, void* receive, size_t count, NcclType type,
                                   NcclComm comm, CUstream_st* stream) {
  return Add({Item::Kind::kAllGather, static_cast<const std::byte*>(send),
              static_cast<std::byte*>(receive), count, type},
             comm, stream);
}

NcclResult ScriptedNccl::ReduceScatter(const void* send, void* receive, size_t count, NcclType type,
                                       NcclComm comm, CUstream_st* stream) {
  return Add({Item::Kind::kReduceScatter, static_cast<const std::byte*>(send),
              static_cast<std::byte*>(receive), count, type},
             comm, stream);
}

NcclResult ScriptedNccl::AllReduce(const void* send, void* receive, size_t count, NcclType type,
                                   NcclComm comm, CUstream_st* stream) {
  return Add({Item::Kind::kAllReduce, static_cast<const std::byte*>(send),
              static_cast<std::byte*>(receive), count, type},
             comm, stream);
}

NcclResult ScriptedNccl::Broadcast(const void* send, void* receive, size_t count, NcclType type,
                                   int root, NcclComm comm, CUstream_st* stream) {
  return Add({Item::Kind::kBroadcast, static_cast<const std::byte*>(send),
              static_cast<std::byte*>(receive), count, type, root},
             comm, stream);
}

NcclResult ScriptedNccl::Send(const void* data, size_t count, NcclType type, int peer,
                              NcclComm comm, CUstream_st* stream) {
  return Add({Item::Kind::kSend, static_cast<const std::byte*>(data), nullptr, count, type, peer},
             comm, stream);
}

NcclResult ScriptedNccl::Recv(void* data, size_t count, NcclType type, int peer, NcclComm comm,
                              CUstream_st* stream) {
  return Add({Item::Kind::kRecv, nullptr, static_cast<std::byte*>(data), count, type, peer}, comm,
             stream);
}

}  // namespace sherd
