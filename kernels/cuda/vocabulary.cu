// Cross-entropy where columns are split over the members of a group.

#include "kernels/cuda/loss.cuh"

namespace sherd {
namespace {

// Of a member's logits (N, columns), of which `count` count; they become e^(logit − highest).
__global__ void __launch_bounds__(kLossThreads)
    VocabularyStatisticsKernel(float* logits, const int32_t* targets, VocabularyPart part,
                               LogitStatistics* statistics, bool whole) {
  const int64_t row = blockIdx.x;
  const int64_t target = targets[row] - part.first;
  if (targets[row] < 0 || part.count == 0) {
    if (threadIdx.x == 0) statistics[row] = {-INFINITY, 0, 0};
    return;
  }
  float* const own = logits + row * part.columns;
  const float highest = HighestOfRow(own, part.count, whole);
  const float of_target = target >= 0 && target < part.count ? own[target] : 0.0f;
  // All have read the target's logit when its place is written.
  __syncthreads();
  // A member's logits may all be −infinity, whose differences are not numbers.
  const float sum =
      SumOfExps<true>(own, part.count, fabsf(highest) == INFINITY ? 0.0f : highest, whole);
  if (threadIdx.x == 0) statistics[row] = {highest, sum, of_target};
}

// A thread a row.
__global__ void __launch_bounds__(kElementThreads)
    JoinStatisticsKernel(const LogitStatistics* of_members, int members, const int32_t* targets,
                         LogitStatistics* joined, double* losses, int64_t rows) {
  const int64_t row = PackOfThread<1>();
  if (row >= rows) return;
  float highest = -INFINITY, target = 0;
  for (int member = 0; member < members; ++member) {
    const LogitStatistics part = of_members[member * rows + row];
    highest = part.highest > highest ? part.highest : highest;
    target = target + part.target;
  }
  double sum = 0;
  for (int member = 0; member < members; ++member) {
    const LogitStatistics part = of_members[member * rows + row];
    // Of a part without logits the sum is 0, and its highest is no number to subtract.
    if (part.sum != 0) {
      sum = sum + part.sum * exp(static_cast<double>(part.highest) - static_cast<double>(highest));
    }
  }
  const float rounded = static_cast<float>(sum);
  joined[row] = {highest, rounded, target};
  const double margin = static_cast<double>(highest) - static_cast<double>(target);
  losses[row] = targets[row] < 0 ? 0.0 : log(static_cast<double>(rounded)) + margin;
}

__global__ void __launch_bounds__(kLossThreads)
    VocabularyGradientKernel(float* logits, const int32_t* targets, VocabularyPart part,
                             const LogitStatistics* own, const LogitStatistics* joined, float scale,
                             RowObjective objective, bool whole) {
  SIMT_SHARED(float, factor, [1]);
  const int64_t row = blockIdx.x;
  float* const gradient = logits + row * part.columns;
  if (targets[row] < 0) return ZeroRow(gradient, part.columns, whole);
  if (threadIdx.x == 0) {
    const double share =
        exp(static_cast<double>(own[row].highest) - static_cast<double>(joined[row].highest));
    factor[0] = static_cast<float>(static_cast<double>(scale) / joined[row].sum * share *
                                   objective.Factor(joined[row].sum, joined[row].highest));
  }
  __syncthreads();
  ScaleToGradient(gradient, part.count, factor[0], targets[row] - part.first, objective, whole);
  for (int64_t c = part.count + threadIdx.x; c < part.columns; c += kLossThreads) gradient[c] = 0;
}

}  // namespace

void CudaKernels::VocabularyStatistics(float* logits, const int32_t* targets,
                                       const VocabularyPart& part, LogitStatistics* statistics,
                                       int64_t rows) {
  Run(SIMT_KERNEL(VocabularyStatisticsKernel), rows, kLossThreads, 0, logits, targets, part,
      statistics, RowsAligned(logits, part.columns));
}

void CudaKernels::JoinStatistics(const LogitStatistics* of_members, int members,
                                 const int32_t* targets, LogitStatistics* joined, int64_t rows,
                                 double* loss) {
  double* const losses = Scratch<double>(rows);
  Run(SIMT_KERNEL(JoinStatisticsKernel), BlocksOfPacks(rows, 1), kElementThreads, 0, of_members,
      members, targets, joined, losses, rows);
  AddLosses(losses, rows, loss);
}

void CudaKernels::VocabularyGradient(float* logits, const int32_t* targets,
                                     const VocabularyPart& part, const LogitStatistics* own,
                                     const LogitStatistics* joined, float scale,
                                     const LossOptions& options, int64_t rows) {
  Run(SIMT_KERNEL(VocabularyGradientKernel), rows, kLossThreads, 0, logits, targets, part, own,
      joined, scale, ObjectiveOf(scale, options, part.vocabulary),
      RowsAligned(logits, part.columns));
}

}  // namespace sherd
