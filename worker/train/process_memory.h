#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace sherd {

// Anonymous memory of this process that is resident, in bytes, as the operating system counts it:
// heap, stacks and private mappings, not files and not shared segments. kUnavailable where the
// system does not tell.
absl::StatusOr<int64_t> AnonymousBytes();

// From now on large blocks of the heap are pages of their own, which go back to the system when
// they are freed. glibc would come to keep them, a hole beside a hole in the heap of every thread:
// the matrix library takes and frees up to 2 MB a call.
void MapLargeHeapBlocks();

// Gives back to the system what the heap holds but nobody uses.
void ReturnFreeHeap();

}  // namespace sherd
