#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/mixture.h"
#include "worker/data/sequences.h"

namespace sherd {

// How sequences are batched: B of them in a micro-batch.
struct BatchOptions {
  int64_t micro_batch = 0;   // B
  int64_t global_batch = 0;  // sequences a step
  uint64_t seed = 0;
};

// What training data come from, and its part of all samples: weight / sum of the weights.
struct TrainingSource {
  std::unique_ptr<Sequences> sequences;
  int64_t weight = 1;
};

// The training samples: sequences of T tokens, in the order of worker/data/mixture.h. The
// micro-batch of any step and g is known without the ones before it (F48).
class TrainingData {
 public:
  // Errors of Mixture::Make. All sources have one sequence length.
  static absl::StatusOr<TrainingData> Make(std::vector<TrainingSource> sources,
                                           const BatchOptions& options);

  // inputs and targets (B, T) of micro-batch `g` in [0, global_batch / micro_batch) of `step`,
  // which counts from 1: its sequence b is global sample (step − 1)·global_batch + g·B + b. Errors
  // of Sequences::Fill.
  absl::Status FillMicroBatch(int64_t step, int64_t g, int32_t* inputs, int32_t* targets) const;
  // How many tokens all micro-batches of `step` have predicted together: what the step's loss is
  // divided by. Known to every rank, whatever it computes of the step.
  int64_t Targets(int64_t step) const;

 private:
  TrainingData(std::vector<std::unique_ptr<Sequences>> sources, Mixture mixture,
               const BatchOptions& options)
      : sources_(std::move(sources)), mixture_(std::move(mixture)), options_(options) {}

  int64_t FirstSample(int64_t step) const { return (step - 1) * options_.global_batch; }

  std::vector<std::unique_ptr<Sequences>> sources_;
  Mixture mixture_;
  BatchOptions options_;
};

// Sequences held out, front to back, each once.
class EvaluationData {
 public:
  EvaluationData(std::unique_ptr<Sequences> sequences, int64_t micro_batch)
      : sequences_(std::move(sequences)), micro_batch_(micro_batch) {}

  // Micro-batches that hold all of it.
  int64_t micro_batches() const;
  // inputs and targets (B, T) of micro-batch `index` >= 0. What lies past the end is input 0 and
  // target −1. Errors as FillMicroBatch above.
  absl::Status FillMicroBatch(int64_t index, int32_t* inputs, int32_t* targets) const;

 private:
  std::unique_ptr<Sequences> sequences_;
  int64_t micro_batch_;
};

}  // namespace sherd
