#include "worker/model/residual_stream.h"

#include "common/check.h"

namespace sherd {

float* ResidualStream::NormOutput(int64_t rows) const {
  return part_.place.sequence ? OwnRowsOfNarrow(rows) : activations_.normed();
}

const float* ResidualStream::GatherNorm(int64_t rows) {
  if (part_.place.sequence) {
    const int64_t bytes = Rows(rows) * channels_ * SizeOf(DType::kF32);
    tensor_->Finish(tensor_->StartAllGather(OwnRowsOfNarrow(rows), activations_.normed(), bytes));
  }
  return activations_.normed();
}

void ResidualStream::StartSum(int64_t rows) {
  SHERD_CHECK(!pending_.has_value());
  sum_ = OwnRowsOfNarrow(rows);
  if (tensor_ == nullptr) return;
  const int64_t elements = rows * channels_;
  pending_ = part_.place.sequence ? tensor_->StartReduceScatter(activations_.narrow(), elements)
                                  : tensor_->StartAllReduce(activations_.narrow(), elements);
}

float* ResidualStream::FinishSum() {
  FinishPending();
  return sum_;
}

void ResidualStream::StartGradient(int64_t rows) {
  SHERD_CHECK(!pending_.has_value());
  if (!part_.place.sequence) return;
  const int64_t bytes = Rows(rows) * channels_ * SizeOf(DType::kF32);
  pending_ = tensor_->StartAllGather(activations_.d_residual(), activations_.normed(), bytes);
}

const float* ResidualStream::FinishGradient() {
  FinishPending();
  return part_.place.sequence ? activations_.normed() : activations_.d_residual();
}

void ResidualStream::FinishPending() {
  if (!pending_.has_value()) return;
  tensor_->Finish(*pending_);
  pending_.reset();
}

}  // namespace sherd
