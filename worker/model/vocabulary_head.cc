#include "worker/model/vocabulary_head.h"

#include <algorithm>

#include "worker/model/unit_view.h"

namespace sherd {

VocabularyHead::VocabularyHead(const ModelPart& part, const ModelShape& shape,
                               const LossOptions& loss, const Activations& activations, Ops& ops,
                               ResidualStream& stream, TensorGroup* tensor)
    : part_(part),
      channels_(shape.hidden),
      vocabulary_{part.vocabulary.begin, part.vocabulary.size(), part.vocab, shape.vocab},
      loss_(loss),
      activations_(activations),
      ops_(ops),
      stream_(stream),
      tensor_(tensor) {}

template <typename Visit>
void VocabularyHead::ForEachChunk(int64_t rows, const Visit& visit) const {
  const int64_t chunk_rows = HeadChunkRows(part_, rows);
  for (int64_t first = 0; first < rows; first += chunk_rows) {
    visit(Chunk{first, std::min(chunk_rows, rows - first)});
  }
}

const float* VocabularyHead::Logits(ConstParam w, int64_t first, int64_t rows) {
  ops_.LinearForward(activations_.normed() + first * channels_, w, kNoParam, activations_.logits(),
                     rows, channels_, part_.vocab);
  return activations_.logits();
}

const LogitStatistics* VocabularyHead::Statistics(float* logits, const int32_t* targets,
                                                  int64_t rows, double& loss) {
  LogitStatistics* const own = activations_.statistics();
  LogitStatistics* const gathered = activations_.gathered_statistics();
  ops_.VocabularyStatistics(logits, targets, vocabulary_, own, rows);
  tensor_->Finish(tensor_->StartAllGather(own, gathered, rows * kLogitStatisticsBytes));
  // The own ones are among those gathered.
  ops_.JoinStatistics(gathered, tensor_->size(), targets, own, rows, loss);
  return own;
}

double VocabularyHead::Loss(ConstParam w, const MicroBatch& micro_batch) {
  double loss = 0;
  ForEachChunk(RowsOf(micro_batch), [&](const Chunk& chunk) {
    const int32_t* targets = micro_batch.targets + chunk.first;
    Logits(w, chunk.first, chunk.rows);
    if (tensor_ == nullptr) {
      ops_.CrossEntropy(activations_.logits(), targets, chunk.rows, part_.vocab, loss);
    } else {
      Statistics(activations_.logits(), targets, chunk.rows, loss);
    }
  });
  return loss;
}

float* VocabularyHead::LogitGradient(ConstParam w, const int32_t* targets, const Chunk& chunk,
                                     float scale, double& loss) {
  float* const logits = activations_.logits();
  Logits(w, chunk.first, chunk.rows);
  if (tensor_ == nullptr) {
    ops_.CrossEntropyBackward(logits, targets, scale, loss_, chunk.rows, part_.vocab, loss);
    return logits;
  }
  const LogitStatistics* joined = Statistics(logits, targets, chunk.rows, loss);
  const LogitStatistics* own = activations_.gathered_statistics() + part_.place.index * chunk.rows;
  ops_.VocabularyGradient(logits, targets, vocabulary_, own, joined, scale, loss_, chunk.rows);
  return logits;
}

double VocabularyHead::Backward(ConstParam w, GradOut dw, const MicroBatch& micro_batch,
                                float scale) {
  const int64_t rows = RowsOf(micro_batch);
  double loss = 0;
  ForEachChunk(rows, [&](const Chunk& chunk) {
    const float* d_logits = LogitGradient(w, micro_batch.targets + chunk.first, chunk, scale, loss);
    const int64_t at = chunk.first * channels_;
    const auto write_weight = [&] {
      ops_.LinearBackwardWeight(d_logits, activations_.normed() + at, dw, kNoGrad, chunk.rows,
                                channels_, part_.vocab);
      dw.accumulate = true;
    };
    // Without a group the gradient of `normed` takes its place.
    if (tensor_ == nullptr) write_weight();
    ops_.LinearBackwardInput(d_logits, w, activations_.narrow() + at, chunk.rows, channels_,
                             part_.vocab, /*accumulate=*/false);
    if (chunk.first + chunk.rows == rows) stream_.StartSum(rows);
    if (tensor_ != nullptr) write_weight();
  });
  return loss;
}

}  // namespace sherd
