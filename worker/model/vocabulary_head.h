#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "worker/model/activations.h"
#include "worker/model/model.h"
#include "worker/model/residual_stream.h"
#include "worker/model/tensor_group.h"

namespace sherd {

// The projection of `normed` to the vocabulary, and the loss, a chunk of rows at a time
// (HeadChunkRows): logits of all rows never exist at once. Members of a tensor-parallel group have
// a part of the vocabulary each and exchange a few numbers a row.
class VocabularyHead {
 public:
  // `tensor` is null without a group.
  VocabularyHead(const ModelPart& part, const ModelShape& shape, const LossOptions& loss,
                 const Activations& activations, Ops& ops, ResidualStream& stream,
                 TensorGroup* tensor);

  // Shapes as in activations.h; w (V, C).

  // Logits (rows, V) of rows [first, first + rows), until the next call of anything.
  const float* Logits(ConstParam w, int64_t first, int64_t rows);
  double Loss(ConstParam w, const MicroBatch& micro_batch);
  // Writes dw, begins to sum the gradient of `normed` over the members (ResidualStream::StartSum),
  // and returns the loss, which is the cross-entropy whatever the options add.
  double Backward(ConstParam w, GradOut dw, const MicroBatch& micro_batch, float scale);

 private:
  struct Chunk {
    int64_t first, rows;
  };
  // Calls visit(chunk) for each chunk of the rows.
  template <typename Visit>
  void ForEachChunk(int64_t rows, const Visit& visit) const;
  // The joined statistics of a chunk of logits, whose losses are added to `loss`.
  const LogitStatistics* Statistics(float* logits, const int32_t* targets, int64_t rows,
                                    double& loss);
  // The chunk's gradient of the logits in their place.
  float* LogitGradient(ConstParam w, const int32_t* targets, const Chunk& chunk, float scale,
                       double& loss);

  const ModelPart& part_;
  const int64_t channels_;
  const VocabularyPart vocabulary_;
  const LossOptions loss_;
  const Activations& activations_;
  Ops& ops_;
  ResidualStream& stream_;
  TensorGroup* const tensor_;
};

}  // namespace sherd
