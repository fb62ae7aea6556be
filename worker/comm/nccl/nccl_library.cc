#include "worker/comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <nccl.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// Memory can be registered, and be of NCCL's own, since 2.19.
constexpr int kOldestVersion = NCCL_VERSION(2, 19, 0);

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);

// The entry points that are used, each with the type that the header gives it.
#define SHERD_NCCL_ENTRY_POINTS(V) \
  V(ncclGetVersion)                \
  V(ncclGetErrorString)            \
  V(ncclGetLastError)              \
  V(ncclGetUniqueId)               \
  V(ncclCommInitRankConfig)        \
  V(ncclCommGetAsyncError)         \
  V(ncclCommFinalize)              \
  V(ncclCommDestroy)               \
  V(ncclCommAbort)                 \
  V(ncclCommRegister)              \
  V(ncclCommDeregister)            \
  V(ncclMemAlloc)                  \
  V(ncclMemFree)                   \
  V(ncclGroupStart)                \
  V(ncclGroupEnd)                  \
  V(ncclAllGather)                 \
  V(ncclReduceScatter)             \
  V(ncclAllReduce)                 \
  V(ncclBroadcast)                 \
  V(ncclSend)                      \
  V(ncclRecv)

struct EntryPoints {
#define SHERD_NCCL_DECLARE(name) decltype(&::name) name = nullptr;
  SHERD_NCCL_ENTRY_POINTS(SHERD_NCCL_DECLARE)
#undef SHERD_NCCL_DECLARE
};

absl::StatusOr<EntryPoints> FindEntryPoints(void* library, const std::string& path) {
  EntryPoints found;
  std::vector<std::string> missing;
#define SHERD_NCCL_FIND(name)                                                   \
  found.name = reinterpret_cast<decltype(found.name)>(::dlsym(library, #name)); \
  if (found.name == nullptr) missing.emplace_back(#name);
  SHERD_NCCL_ENTRY_POINTS(SHERD_NCCL_FIND)
#undef SHERD_NCCL_FIND
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has no ", absl::StrJoin(missing, ", ")));
  }
  return found;
}

NcclResult From(ncclResult_t result) { return static_cast<NcclResult>(result); }

ncclDataType_t TypeOf(NcclType type) {
  switch (type) {
    case NcclType::kF32:
      return ncclFloat32;
    case NcclType::kBF16:
      return ncclBfloat16;
    case NcclType::kByte:
      break;
  }
  return ncclUint8;
}

class NcclLibrary final : public NcclApi {
 public:
  NcclLibrary(const EntryPoints& nccl, int version) : nccl_(nccl), version_(version) {}

  int version() override { return version_; }
  std::string Text(NcclResult result, NcclComm comm) override {
    return absl::StrCat(nccl_.ncclGetErrorString(static_cast<ncclResult_t>(result)), " (",
                        nccl_.ncclGetLastError(comm), ")");
  }

  NcclResult GetUniqueId(NcclUniqueId* id) override {
    ncclUniqueId made;
    const NcclResult result = From(nccl_.ncclGetUniqueId(&made));
    std::memcpy(id->bytes.data(), made.internal, sizeof(made.internal));
    return result;
  }
  NcclResult CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank,
                          const char* name) override {
    ncclUniqueId theirs;
    std::memcpy(theirs.internal, id.bytes.data(), sizeof(theirs.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = name;
    return From(nccl_.ncclCommInitRankConfig(comm, size, theirs, rank, &config));
  }
  NcclResult CommGetAsyncError(NcclComm comm, NcclResult* error) override {
    ncclResult_t state = ncclSuccess;
    const NcclResult result = From(nccl_.ncclCommGetAsyncError(comm, &state));
    *error = From(state);
    return result;
  }
  NcclResult CommFinalize(NcclComm comm) override { return From(nccl_.ncclCommFinalize(comm)); }
  NcclResult CommDestroy(NcclComm comm) override { return From(nccl_.ncclCommDestroy(comm)); }
  NcclResult CommAbort(NcclComm comm) override { return From(nccl_.ncclCommAbort(comm)); }

  NcclResult CommRegister(NcclComm comm, void* memory, size_t bytes, void** handle) override {
    return From(nccl_.ncclCommRegister(comm, memory, bytes, handle));
  }
  NcclResult CommDeregister(NcclComm comm, void* handle) override {
    return From(nccl_.ncclCommDeregister(comm, handle));
  }
  NcclResult MemAlloc(void** memory, size_t bytes) override {
    return From(nccl_.ncclMemAlloc(memory, bytes));
  }
  NcclResult MemFree(void* memory) override { return From(nccl_.ncclMemFree(memory)); }

  NcclResult GroupStart() override { return From(nccl_.ncclGroupStart()); }
  NcclResult GroupEnd() override { return From(nccl_.ncclGroupEnd()); }
  NcclResult AllGather(const void* send, void* receive, size_t count, NcclType type, NcclComm comm,
                       CUstream_st* stream) override {
    return From(nccl_.ncclAllGather(send, receive, count, TypeOf(type), comm, stream));
  }
  NcclResult ReduceScatter(const void* send, void* receive, size_t count, NcclType type,
                           NcclComm comm, CUstream_st* stream) override {
    return From(nccl_.ncclReduceScatter(send, receive, count, TypeOf(type), ncclSum, comm, stream));
  }
  NcclResult AllReduce(const void* send, void* receive, size_t count, NcclType type, NcclComm comm,
                       CUstream_st* stream) override {
    return From(nccl_.ncclAllReduce(send, receive, count, TypeOf(type), ncclSum, comm, stream));
  }
  NcclResult Broadcast(const void* send, void* receive, size_t count, NcclType type, int root,
                       NcclComm comm, CUstream_st* stream) override {
    return From(nccl_.ncclBroadcast(send, receive, count, TypeOf(type), root, comm, stream));
  }
  NcclResult Send(const void* data, size_t count, NcclType type, int peer, NcclComm comm,
                  CUstream_st* stream) override {
    return From(nccl_.ncclSend(data, count, TypeOf(type), peer, comm, stream));
  }
  NcclResult Recv(void* data, size_t count, NcclType type, int peer, NcclComm comm,
                  CUstream_st* stream) override {
    return From(nccl_.ncclRecv(data, count, TypeOf(type), peer, comm, stream));
  }

 private:
  const EntryPoints nccl_;
  const int version_;
};

absl::StatusOr<std::unique_ptr<NcclApi>> FromLibrary(void* library, const std::string& path) {
  SHERD_ASSIGN_OR_RETURN(const EntryPoints found, FindEntryPoints(library, path));
  int version = 0;
  if (found.ncclGetVersion(&version) != ncclSuccess || version < kOldestVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is NCCL of version ", version, "; ",
                                                      kOldestVersion, " or later is needed"));
  }
  return std::make_unique<NcclLibrary>(found, version);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclApi>> OpenNccl(const std::vector<std::string>& paths) {
  std::vector<std::string> answers;
  for (const std::string& path : paths) {
    // Never closed: its threads may outlive every communicator.
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return FromLibrary(library, path);
    answers.emplace_back(::dlerror());
  }
  return absl::UnavailableError(absl::StrCat("no NCCL: ", absl::StrJoin(answers, "; ")));
}

}  // namespace sherd
