#include "worker/pack/piece_plan.h"

#include <algorithm>
#include <utility>

namespace sherd {

std::vector<PlannedPiece> PlanPieces(absl::Span<const int64_t> file_bytes, int64_t piece_bytes,
                                     bool keep_whole) {
  std::vector<PlannedPiece> pieces;
  PlannedPiece piece;
  int64_t bytes = 0;
  const auto add = [&](const PlannedRange& range) {
    piece.push_back(range);
    bytes += range.end - range.begin;
    if (bytes < piece_bytes) return;
    pieces.push_back(std::exchange(piece, {}));
    bytes = 0;
  };
  for (size_t file = 0; file < file_bytes.size(); ++file) {
    int64_t begin = 0;
    while (!keep_whole && file_bytes[file] - begin > piece_bytes) {
      add({file, begin, begin + piece_bytes});
      begin += piece_bytes;
    }
    // Also of an empty file: it is a document too.
    add({file, begin, file_bytes[file]});
  }
  if (!piece.empty()) pieces.push_back(std::move(piece));
  return pieces;
}

}  // namespace sherd
