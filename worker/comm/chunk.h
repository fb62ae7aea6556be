#pragma once

#include <cstdint>

namespace sherd {

// A run of elements of an operation's data.
struct Chunk {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t elements() const { return end - begin; }
};

// The part of an all-reduce that a rank reduces: of n elements those from n · rank / ranks on,
// rounded down.
constexpr Chunk ChunkOf(int64_t elements, int64_t ranks, int64_t rank) {
  const auto begin_of = [=](int64_t part) {
    return elements / ranks * part + elements % ranks * part / ranks;
  };
  return {begin_of(rank), begin_of(rank + 1)};
}

}  // namespace sherd
