// Cross-entropy over the whole vocabulary.

#include "kernels/cuda/loss.cuh"

namespace sherd {
namespace {

// logits (N, V) become d(loss · scale)/dlogits.
__global__ void __launch_bounds__(kLossThreads)
    CrossEntropyBackwardKernel(float* logits, const int32_t* targets, float scale,
                               RowObjective objective, int64_t vocab, double* losses, bool whole) {
  const int64_t row = blockIdx.x;
  const int32_t target = targets[row];
  float* const own = logits + row * vocab;
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = 0;
    return ZeroRow(own, vocab, whole);
  }
  const float highest = HighestOfRow(own, vocab, whole);
  const float of_target = own[target];
  // All have read the target's logit when its place is written.
  __syncthreads();
  const float sum = SumOfExps<true>(own, vocab, highest, whole);
  const float factor = static_cast<float>(objective.Factor(sum, highest));
  ScaleToGradient(own, vocab, scale / sum * factor, target, objective, whole);
  if (threadIdx.x == 0) {
    const double margin = static_cast<double>(highest) - static_cast<double>(of_target);
    losses[row] = log(static_cast<double>(sum)) + margin;
  }
}

__global__ void __launch_bounds__(kLossThreads)
    CrossEntropyKernel(const float* logits, const int32_t* targets, int64_t vocab, double* losses,
                       bool whole) {
  const int64_t row = blockIdx.x;
  const int32_t target = targets[row];
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = 0;
    return;
  }
  const float* const own = logits + row * vocab;
  const float highest = HighestOfRow(own, vocab, whole);
  const float sum = SumOfExps<false>(own, vocab, highest, whole);
  if (threadIdx.x == 0) {
    const double margin = static_cast<double>(highest) - static_cast<double>(own[target]);
    losses[row] = log(static_cast<double>(sum)) + margin;
  }
}

// One warp reads ahead; its first lane adds.
__global__ void __launch_bounds__(32)
    AddLossesKernel(const double* losses, int64_t rows, double* loss) {
  SIMT_SHARED(double, ahead, [32]);
  double total = *loss;
  for (int64_t first = 0; first < rows; first += 32) {
    const int64_t count = min(rows - first, int64_t{32});
    if (threadIdx.x < count) ahead[threadIdx.x] = losses[first + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int64_t i = 0; i < count; ++i) total = total + ahead[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *loss = total;
}

}  // namespace

void CudaKernels::AddLosses(const double* losses, int64_t rows, double* loss) {
  Run(SIMT_KERNEL(AddLossesKernel), rows == 0 ? 0 : 1, 32, 0, losses, rows, loss);
}

void CudaKernels::CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                                       const LossOptions& options, int64_t rows, int64_t vocab,
                                       double* loss) {
  double* const losses = Scratch<double>(rows);
  Run(SIMT_KERNEL(CrossEntropyBackwardKernel), rows, kLossThreads, 0, logits, targets, scale,
      ObjectiveOf(scale, options, vocab), vocab, losses, RowsAligned(logits, vocab));
  AddLosses(losses, rows, loss);
}

void CudaKernels::CrossEntropy(const float* logits, const int32_t* targets, int64_t rows,
                               int64_t vocab, double* loss) {
  double* const losses = Scratch<double>(rows);
  Run(SIMT_KERNEL(CrossEntropyKernel), rows, kLossThreads, 0, logits, targets, vocab, losses,
      RowsAligned(logits, vocab));
  AddLosses(losses, rows, loss);
}

}  // namespace sherd
