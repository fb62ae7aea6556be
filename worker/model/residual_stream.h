#pragma once

#include <cstdint>
#include <optional>

#include "plan/tensor_part.h"
#include "worker/model/activations.h"
#include "worker/model/tensor_group.h"

namespace sherd {

// How a member of a tensor-parallel group goes from its rows of the residual stream to the layers
// that the group splits, and back. A column-split layer reads `normed` for all N rows of a
// micro-batch; a row-split one leaves the member's addend for all of them in `narrow`. Without a
// group nothing moves. At most one of the sum and the gradient is under way.
class ResidualStream {
 public:
  // `tensor` is null without a group.
  ResidualStream(const ModelPart& part, int64_t channels, const Activations& activations,
                 TensorGroup* tensor)
      : part_(part), channels_(channels), activations_(activations), tensor_(tensor) {}

  // Of N rows those that the member holds, and the first of them.
  int64_t Rows(int64_t rows) const { return part_.ResidualRows(rows); }
  int64_t FirstRow(int64_t rows) const { return part_.FirstResidualRow(rows); }

  // Where a norm ahead of a column-split layer puts its output for the member's rows.
  float* NormOutput(int64_t rows) const;
  // Completes `normed` (N, C) from what all members' norms put there.
  const float* GatherNorm(int64_t rows);

  // Sums `narrow` over the members; in between it belongs to the group. FinishSum gives the
  // member's rows of the sum.
  void StartSum(int64_t rows);
  float* FinishSum();

  // The gradient of the residual stream for all rows, which without sequence parallelism every
  // member has; with it `normed` is the place.
  void StartGradient(int64_t rows);
  const float* FinishGradient();

 private:
  float* OwnRowsOfNarrow(int64_t rows) const {
    return activations_.narrow() + FirstRow(rows) * channels_;
  }
  void FinishPending();

  const ModelPart& part_;
  const int64_t channels_;
  const Activations& activations_;
  TensorGroup* const tensor_;
  std::optional<Ticket> pending_;
  float* sum_ = nullptr;
};

}  // namespace sherd
