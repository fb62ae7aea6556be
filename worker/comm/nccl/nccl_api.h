#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/dtype.h"

struct ncclComm;
struct CUstream_st;

namespace sherd {

// NCCL's communicator handle and the names of one group of processes, as its library has them.
using NcclComm = struct ::ncclComm*;
struct NcclUniqueId {
  std::array<char, 128> bytes = {};
};

// ncclResult_t.
enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

enum class NcclType : uint8_t { kByte, kF32, kBF16 };
constexpr NcclType NcclTypeOf(DType dtype) {
  return dtype == DType::kF32 ? NcclType::kF32 : NcclType::kBF16;
}

// NCCL's entry points, with the meaning that its documentation gives them: a table that the library
// fills in when it is opened (nccl_library.h), and a scripted stand-in in tests. Communicators are
// non-blocking: a call that has more to do answers kInProgress, and GetAsyncError tells when that
// is done. Counts are elements of the type, reductions are sums.
class NcclApi {
 public:
  virtual ~NcclApi() = default;
  // 22809: 2.28.9.
  virtual int version() = 0;
  // The result's name and the library's last message; `comm` may be null.
  virtual std::string Text(NcclResult result, NcclComm comm) = 0;

  virtual NcclResult GetUniqueId(NcclUniqueId* id) = 0;
  virtual NcclResult CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank,
                                  const char* name) = 0;
  virtual NcclResult CommGetAsyncError(NcclComm comm, NcclResult* error) = 0;
  virtual NcclResult CommFinalize(NcclComm comm) = 0;
  virtual NcclResult CommDestroy(NcclComm comm) = 0;
  virtual NcclResult CommAbort(NcclComm comm) = 0;

  virtual NcclResult CommRegister(NcclComm comm, void* memory, size_t bytes, void** handle) = 0;
  virtual NcclResult CommDeregister(NcclComm comm, void* handle) = 0;
  virtual NcclResult MemAlloc(void** memory, size_t bytes) = 0;
  virtual NcclResult MemFree(void* memory) = 0;

  virtual NcclResult GroupStart() = 0;
  virtual NcclResult GroupEnd() = 0;
  virtual NcclResult AllGather(const void* send, void* receive, size_t count, NcclType type,
                               NcclComm comm, CUstream_st* stream) = 0;
  // `count` of what is received.
  virtual NcclResult ReduceScatter(const void* send, void* receive, size_t count, NcclType type,
                                   NcclComm comm, CUstream_st* stream) = 0;
  virtual NcclResult AllReduce(const void* send, void* receive, size_t count, NcclType type,
                               NcclComm comm, CUstream_st* stream) = 0;
  virtual NcclResult Broadcast(const void* send, void* receive, size_t count, NcclType type,
                               int root, NcclComm comm, CUstream_st* stream) = 0;
  virtual NcclResult Send(const void* data, size_t count, NcclType type, int peer, NcclComm comm,
                          CUstream_st* stream) = 0;
  virtual NcclResult Recv(void* data, size_t count, NcclType type, int peer, NcclComm comm,
                          CUstream_st* stream) = 0;
};

}  // namespace sherd
