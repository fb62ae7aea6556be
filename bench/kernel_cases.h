#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/repetitions.h"

namespace sherd {

struct KernelOptions {
  std::string kernel;
  // Of a GPT-2: hidden, feed-forward 4 · hidden, heads of 64.
  int64_t layers = 12, hidden = 768, vocab = 50257;
  int64_t batch = 4, tokens = 256;
  int64_t elements = 64 << 20;
  bool half = false;
  int threads = 2;
};

// Something to time, and what there is of it to do in one repetition.
struct KernelCase {
  Figures about;
  std::function<Figures()> repetition;
};

// All matrix products of one training step of the model: each shape of a block once, the head's
// once; "seconds" is the sum weighted by how often a step runs them. By our kernels, or by one call
// of oneDNN's SGEMM for a whole product on all threads, which is the limit.
KernelCase LinearCase(const KernelOptions& options);
KernelCase SgemmLimitCase(const KernelOptions& options);
// Forward and backward of one layer's attention.
KernelCase AttentionCase(const KernelOptions& options);
// One update of `elements` parameters, and a loop that does nothing but read and write the same
// bytes.
KernelCase AdamWCase(const KernelOptions& options);
KernelCase AdamWMemoryLimitCase(const KernelOptions& options);

// A product (rows, in) × (in, out) that a step runs `times` times forward, and as often for each of
// the two gradients.
struct LinearShape {
  int64_t rows, in, out;
  double times;
};
std::vector<LinearShape> LinearShapesOf(const KernelOptions& options);
double FlopsOf(const std::vector<LinearShape>& shapes);
// Small values from a seeded generator.
std::vector<float> NormalValues(int64_t elements);

}  // namespace sherd
