#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/element_range.h"
#include "worker/pretrained/element_type.h"
#include "worker/pretrained/published_tensors.h"

namespace sherd {

// Which tensor lies where in the files of a folder of published weights.
struct PlacedTensor {
  PublishedTensor tensor;
  size_t file = 0;
  // From the start of the file.
  int64_t offset = 0;
};

struct ExportPlan {
  // "model.safetensors", or "model-00001-of-00003.safetensors", …
  std::vector<std::string> files;
  // The first bytes of each.
  std::vector<std::string> headers;
  std::vector<PlacedTensor> tensors;
  // Of all weights, without headers.
  int64_t weight_bytes = 0;
};

// Fills files in the order of the tensors; one is full when the next tensor would take it beyond
// `shard_bytes`.
ExportPlan PlanExport(const ModelShape& shape, ElementType type, int64_t shard_bytes);

// model.safetensors.index.json of several files.
std::string FormatWeightsIndex(const ExportPlan& plan);

// What one thread converts at a time: elements [begin, end), in row-major order, of a block of the
// columns of our tensor, which are one run of the published one.
struct ExportChunk {
  size_t tensor = 0;
  ElementRange columns;
  int64_t begin = 0;
  int64_t end = 0;
  // The first of them in the published tensor.
  int64_t published_at = 0;
};
// All of the plan, none with more than `elements` where a row or column has no more.
std::vector<ExportChunk> CutIntoChunks(const ExportPlan& plan, int64_t elements);

}  // namespace sherd
