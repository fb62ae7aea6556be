#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sherd {

// A piece of a tensor has a checksum a chunk, so that who reads a part of it verifies little more
// than that part.
inline constexpr int64_t kChunkBytes = 4 << 20;

// How many chunks, all but the last of kChunkBytes, so many bytes have.
inline int64_t ChunksOf(int64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }

// XXH3, 64 bits.
uint64_t Checksum(absl::string_view bytes);
// One a chunk.
std::vector<uint64_t> ChunkChecksums(absl::string_view bytes);

// 16 digits each, one behind the other.
std::string FormatChecksums(const std::vector<uint64_t>& checksums);
// Takes the spelling of FormatChecksums only, so that a changed digit never goes unnoticed.
bool ParseChecksums(absl::string_view text, std::vector<uint64_t>& checksums);

}  // namespace sherd
