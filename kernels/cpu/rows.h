#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace sherd {

// Work on rows of floats that several operations share. On the calling thread.

// Writes or adds `values` (elements) to out[offset …], rounded once.
void WriteGrad(const GradOut& out, int64_t offset, const float* values, int64_t elements);
// y (elements) += x
void AddRow(float* y, const float* x, int64_t elements);
// sums (columns) = column sums of x (rows, columns; stride), in an order that depends on `rows`
// alone.
void SumColumns(const float* x, int64_t stride, int64_t rows, int64_t columns, float* sums);

}  // namespace sherd
