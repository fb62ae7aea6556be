#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/data/sample_order.h"
#include "worker/data/token_source.h"

namespace sherd {

// How sequences are cut and batched: B sequences of T tokens in a micro-batch.
struct BatchOptions {
  int64_t seq_len = 0;       // T
  int64_t micro_batch = 0;   // B
  int64_t global_batch = 0;  // sequences a step; training only
  int64_t vocab = 0;
  uint64_t seed = 0;  // training only
};

// The training samples. A window is T tokens and the one after them, at stride T; what is left at
// the end is not used. The micro-batch of any step and g is known without the ones before it (F48).
class TrainingData {
 public:
  // kInvalidArgument when there are less than T + 1 tokens.
  static absl::StatusOr<TrainingData> Make(std::unique_ptr<TokenSource> source,
                                           const BatchOptions& options);

  // inputs and targets (B, T) of micro-batch `g` in [0, global_batch / micro_batch) of `step`,
  // which counts from 1: its sequence b is global sample (step − 1)·global_batch + g·B + b. Errors
  // of TokenSource::Read; kOutOfRange for a token that is not below the vocabulary's size.
  absl::Status FillMicroBatch(int64_t step, int64_t g, int32_t* inputs, int32_t* targets) const;

 private:
  TrainingData(std::unique_ptr<TokenSource> source, const BatchOptions& options, int64_t windows)
      : source_(std::move(source)), options_(options), order_(windows, options.seed) {}

  std::unique_ptr<TokenSource> source_;
  BatchOptions options_;
  SampleOrder order_;
};

// The held-out text, front to back: each token but the first is predicted exactly once.
class EvaluationData {
 public:
  // kInvalidArgument when there are less than 2 tokens.
  static absl::StatusOr<EvaluationData> Make(std::unique_ptr<TokenSource> source,
                                             const BatchOptions& options);

  // Micro-batches that hold all of it.
  int64_t micro_batches() const;
  // Tokens that are predicted.
  int64_t targets() const { return source_->tokens() - 1; }
  // inputs and targets (B, T) of micro-batch `index` >= 0. What lies past the end is input 0 and
  // target −1. Errors as FillMicroBatch above.
  absl::Status FillMicroBatch(int64_t index, int32_t* inputs, int32_t* targets) const;

 private:
  EvaluationData(std::unique_ptr<TokenSource> source, const BatchOptions& options)
      : source_(std::move(source)), options_(options) {}

  std::unique_ptr<TokenSource> source_;
  BatchOptions options_;
};

}  // namespace sherd
