#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/pack/documents.h"
#include "worker/pack/piece_store.h"

namespace sherd {

// How far a run is. Bytes are of the plan.
struct PackProgress {
  int64_t bytes = 0;
  int64_t total_bytes = 0;
  // Of `bytes`, those of pieces that were there at the start.
  int64_t found_bytes = 0;
  double seconds = 0;
};

// What a run has stored or found.
struct PiecesDone {
  int64_t tokens = 0;
  int64_t documents = 0;
  size_t found_pieces = 0;
};

// Tokenizes and stores, on `threads` >= 1 threads, the pieces of `plan` that `store` does not have.
// Calls `on_progress` about once a second on the calling thread, and, unless it is null, `stopped`
// more often, which ends it with kAborted. The first error of any piece ends it; what is stored
// stays. All arguments must outlive the call.
absl::StatusOr<PiecesDone> RunPieces(const std::vector<SourceFile>& files,
                                     const std::vector<PlannedPiece>& plan,
                                     const Tokenizer& tokenizer, const DocumentOptions& options,
                                     const PieceStore& store, int threads,
                                     const std::function<bool()>& stopped,
                                     absl::FunctionRef<void(const PackProgress&)> on_progress);

}  // namespace sherd
