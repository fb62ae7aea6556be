#include "worker/holdings/checksum_stream.h"

#include <xxhash.h>

#include "common/check.h"

namespace sherd {

struct ChecksumStream::State {
  XXH3_state_t* const xxh3 = XXH3_createState();
  ~State() { XXH3_freeState(xxh3); }
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {
  SHERD_CHECK(state_->xxh3 != nullptr && XXH3_64bits_reset(state_->xxh3) == XXH_OK);
}
ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::Add(const std::byte* piece, int64_t bytes) {
  XXH3_64bits_update(state_->xxh3, piece, static_cast<size_t>(bytes));
}

uint64_t ChecksumStream::Sum() const { return XXH3_64bits_digest(state_->xxh3); }

}  // namespace sherd
