#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/memory.h"
#include "plan/parameters.h"
#include "worker/checkpoint/manifest.h"
#include "worker/dataset/text_codec.h"
#include "worker/model/model.h"

namespace sherd {

// The weights of a model, whole, in fp32.
struct LoadedWeights {
  // Where they were found.
  std::string directory;
  Manifest manifest;
  Inventory inventory;
  // By unit.
  std::vector<Buffer> buffers;
  std::vector<UnitParams> units;

  const ModelShape& shape() const { return manifest.info.model; }
};

// Those that a user means by `directory`: of a job that has ended, or a checkpoint. Without the
// optimizer's state. kInvalidArgument, kNotFound and kDataLoss, naming the path, when they are
// missing, damaged or not of their model. `meter` outlives them.
absl::StatusOr<LoadedWeights> LoadWeights(const std::string& directory, MemoryMeter& meter);

// What the model's ids mean: as the tokenizer.json at `tokenizer` says or, when that is "", as the
// weights name it. kInvalidArgument when it cannot be read there or has more ids than the model.
absl::StatusOr<TextCodec> CodecOf(const LoadedWeights& weights, const std::string& tokenizer);

}  // namespace sherd
