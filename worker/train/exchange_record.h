#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops.h"

namespace sherd {

// How far a rank is with its part of the checkpoint that all are saving.
struct SaveWord {
  enum class State : uint8_t {
    // Nothing is being saved, or the part is being written.
    kNone,
    kWritten,
    kFailed,
    // Of rank 0: the checkpoint is published, or given up.
    kOver
  };
  State state = State::kNone;
  // Of kFailed.
  absl::StatusCode why = absl::StatusCode::kOk;
};

// One rank's contribution to the figures of a step, sent to every rank as a record of
// kExchangeFixedBytes + kExchangeBytesPerRound · rounds bytes (plan/ledger.h).
struct ExchangeRecord {
  // The rank wants all to stop together after this step.
  bool pause = false;
  SaveWord save;
  // Seconds that it computed since the exchange before.
  double busy_seconds = 0;
  // Squared gradients of what the rank counts, each gradient counted by exactly one rank.
  ExactSum squares;
  // In the order of the rank's rounds: the loss in nats and the tokens that it is the sum of.
  std::vector<double> losses;
  std::vector<int64_t> tokens;

  // Writes exactly `record.size()` bytes; losses and tokens have one entry a round.
  void Write(absl::Span<std::byte> record) const;
  static ExchangeRecord Read(absl::Span<const std::byte> record);
};

}  // namespace sherd
