#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sherd {

// A part of a file as planned. Its ends that are not the file's move on to the next place where the
// file may be cut, which only reading it tells.
struct PlannedRange {
  size_t file = 0;  // index
  int64_t begin = 0;
  int64_t end = 0;
};

// What is tokenized and stored as one.
using PlannedPiece = std::vector<PlannedRange>;

// Cuts files of so many bytes each, in order, into pieces of about `piece_bytes` >= 1: large files
// at its multiples unless `keep_whole`; small files go together. A pure function of its arguments.
std::vector<PlannedPiece> PlanPieces(absl::Span<const int64_t> file_bytes, int64_t piece_bytes,
                                     bool keep_whole);

}  // namespace sherd
