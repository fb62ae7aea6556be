#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sherd {

// The checksum of stored shards, XXH3 of 64 bits, of bytes that come piece by piece.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(const ChecksumStream&) = delete;

  void Add(const std::byte* piece, int64_t bytes);
  // Of all that was added.
  uint64_t Sum() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace sherd
