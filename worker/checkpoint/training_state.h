#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/parameters.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/manifest.h"

namespace sherd {

// A training checkpoint holds three tensors a parameter: the master weights under its own name, and
// AdamW's moments under these.
std::string FirstMomentName(absl::string_view parameter);   // "optimizer.m/NAME"
std::string SecondMomentName(absl::string_view parameter);  // "optimizer.v/NAME"

// The tensors of all parameters, whole: weights, first moments, second moments, each in the order
// of WeightsOf.
std::vector<TensorDescription> TrainingTensorsOf(const Inventory& inventory);

// What a rank keeps of a range of a unit's flat buffer: (elements of the range) each.
struct StateView {
  const float* master = nullptr;
  const float* m = nullptr;
  const float* v = nullptr;
};
struct StateTarget {
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;
};

// As AppendRanges, for weights and moments.
void AppendState(const Unit& unit, const ElementRange& written, const StateView& state,
                 std::vector<TensorRange>& ranges);

// As TensorRange: where those elements are to be put.
struct TensorTarget {
  std::string name;
  std::vector<int64_t> shape;
  ElementRange columns;
  int64_t begin = 0;
  int64_t end = 0;
  float* data = nullptr;  // (end − begin)
};

// Appends what elements `wanted` of a unit's flat buffer are of the tensors, for weights and
// moments. Padding is of no tensor: what is in it stays.
void AppendTargets(const Unit& unit, const ElementRange& wanted, const StateTarget& state,
                   std::vector<TensorTarget>& targets);

// For weights alone, of which `master` is where the first of `wanted` is to be put.
void AppendWeightTargets(const Unit& unit, const ElementRange& wanted, float* master,
                         std::vector<TensorTarget>& targets);

// Fills the targets from a checkpoint that any layout wrote, and returns how many bytes were read
// for it: the chunks (chunk_checksums.h) that hold something of them, each verified before it is
// used (F46). kNotFound and kDataLoss name the file or the tensor; kFailedPrecondition when the
// checkpoint lacks a tensor, has it in another shape or has no checksums of pieces. When it fails
// targets may be filled in part. One file is open at a time; needs kChunkBytes of memory. `watch`,
// if it is not empty, hears of every chunk that has been read, and ends the loading by an error.
absl::StatusOr<int64_t> LoadTargets(
    const std::string& directory, const Manifest& manifest, absl::Span<const TensorTarget> targets,
    const std::function<absl::Status(int64_t bytes)>& watch = nullptr);

}  // namespace sherd
