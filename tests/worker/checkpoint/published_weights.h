#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint.h"

namespace sherd {

// Writes the weights of a whole model into `directory`, as one rank leaves them at a job's end.
// `values` gives those of a parameter, which must stay until all are written.
inline void PublishWeights(const std::string& directory, const CheckpointInfo& info,
                           const Inventory& inventory,
                           absl::FunctionRef<const float*(const Parameter& parameter)> values) {
  std::vector<TensorRange> ranges;
  for (const Unit& unit : inventory.units) {
    for (const Parameter& parameter : unit.parameters) {
      ranges.push_back({parameter.name, parameter.shape, parameter.slice.columns, 0,
                        parameter.elements, values(parameter)});
    }
  }
  const auto files = MakePosixFileSystem();
  ASSERT_TRUE(PrepareStaging(*files, directory, info).ok());
  const auto shard = WriteShard(*files, StagingDirectory(directory, info), 0, 1, ranges);
  ASSERT_TRUE(shard.ok());
  ASSERT_TRUE(PublishCheckpoint(*files, directory, info, WeightsOf(inventory), {*shard}).ok());
}

}  // namespace sherd
