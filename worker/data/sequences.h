#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/data/token_source.h"
#include "worker/data/validation_split.h"

namespace sherd {

// Sequences of T tokens, each token with the one that follows it, or −1 where that is not to be
// predicted. Thread-safe.
class Sequences {
 public:
  virtual ~Sequences() = default;
  // T.
  virtual int64_t seq_len() const = 0;
  // How many there are; at least 1.
  virtual int64_t count() const = 0;
  // How many tokens sequence `index` has predicted, from 1 to T.
  virtual int64_t Targets(int64_t index) const = 0;
  // inputs and targets (T) of sequence `index` in [0, count()). What lies past the sequence's end
  // is input 0 and target −1. Errors of TokenSource::Read; kOutOfRange for a token that is not
  // below the vocabulary's size.
  virtual absl::Status Fill(int64_t index, int32_t* inputs, int32_t* targets) const = 0;
};

// How tokens are cut: a window is T tokens and the one after them, at stride T.
enum class Tail {
  kDropped,  // what is left at the end is not used
  kKept,     // the last window may be shorter: each token but the first is predicted once
};
// kInvalidArgument when there are less than T + 1 tokens (kKept: 2).
absl::StatusOr<std::unique_ptr<Sequences>> CutWindows(std::unique_ptr<TokenSource> source,
                                                      int64_t seq_len, int64_t vocab, Tail tail);

// One side of a split.
std::unique_ptr<Sequences> TrainingSide(std::shared_ptr<const Sequences> all,
                                        const ValidationSplit& split);
std::unique_ptr<Sequences> ValidationSide(std::shared_ptr<const Sequences> all,
                                          const ValidationSplit& split);

// The sequences of all, one after the other; at least one, and all of one length.
std::unique_ptr<Sequences> JoinSequences(std::vector<std::unique_ptr<Sequences>> parts);

}  // namespace sherd
