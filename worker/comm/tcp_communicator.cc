#include "worker/comm/tcp_communicator.h"

#include <sys/mman.h>

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {

absl::StatusOr<TcpMemory> TcpMemory::Create(int64_t arena_bytes, int peers) {
  TcpMemory memory;
  memory.arena_bytes_ = arena_bytes;
  memory.peers_ = peers;
  SHERD_ASSIGN_OR_RETURN(const FileDescriptor pages, NewPages(arena_bytes, memory.staging_bytes()));
  SHERD_ASSIGN_OR_RETURN(memory.arena_,
                         PageMapping::Map(pages, 0, arena_bytes, PROT_READ | PROT_WRITE));
  SHERD_ASSIGN_OR_RETURN(memory.staging_,
                         PageMapping::Map(pages, PageCeil(arena_bytes), memory.staging_bytes(),
                                          PROT_READ | PROT_WRITE));
  return memory;
}

TcpCommunicator::TcpCommunicator(int rank, std::vector<Member> members, TcpMemory memory,
                                 absl::Duration operation_timeout)
    : rank_(rank),
      memory_(std::move(memory)),
      operations_(rank, std::move(members), {.operation_timeout = operation_timeout}) {}

void TcpCommunicator::CheckInArena(const void* data, int64_t bytes) const {
  if (bytes == 0) return;
  const int64_t offset = static_cast<const std::byte*>(data) - arena();
  SHERD_CHECK(offset >= 0 && bytes >= 0 && offset <= arena_bytes() - bytes);
}

}  // namespace sherd
