#include "worker/data/batches.h"

#include <algorithm>
#include <cstddef>

#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {

absl::StatusOr<TrainingData> TrainingData::Make(std::vector<TrainingSource> sources,
                                                const BatchOptions& options) {
  std::vector<MixedSource> mixed;
  std::vector<std::unique_ptr<Sequences>> sequences;
  for (TrainingSource& source : sources) {
    mixed.push_back({source.sequences->count(), source.weight});
    sequences.push_back(std::move(source.sequences));
    SHERD_CHECK(sequences.back()->seq_len() == sequences.front()->seq_len());
  }
  SHERD_ASSIGN_OR_RETURN(Mixture mixture, Mixture::Make(mixed, options.seed));
  return TrainingData(std::move(sequences), std::move(mixture), options);
}

absl::Status TrainingData::FillMicroBatch(int64_t step, int64_t g, int32_t* inputs,
                                          int32_t* targets) const {
  const int64_t length = sources_.front()->seq_len();
  const int64_t first = FirstSample(step) + g * options_.micro_batch;
  for (int64_t b = 0; b < options_.micro_batch; ++b) {
    const MixedWindow at = mixture_.Window(first + b);
    SHERD_RETURN_IF_ERROR(sources_[static_cast<size_t>(at.source)]->Fill(
        at.window, inputs + b * length, targets + b * length));
  }
  return absl::OkStatus();
}

int64_t TrainingData::Targets(int64_t step) const {
  const int64_t first = FirstSample(step);
  int64_t targets = 0;
  for (int64_t sample = first; sample < first + options_.global_batch; ++sample) {
    const MixedWindow at = mixture_.Window(sample);
    targets += sources_[static_cast<size_t>(at.source)]->Targets(at.window);
  }
  return targets;
}

int64_t EvaluationData::micro_batches() const {
  return (sequences_->count() + micro_batch_ - 1) / micro_batch_;
}

absl::Status EvaluationData::FillMicroBatch(int64_t index, int32_t* inputs,
                                            int32_t* targets) const {
  const int64_t length = sequences_->seq_len();
  std::fill_n(inputs, micro_batch_ * length, 0);
  std::fill_n(targets, micro_batch_ * length, -1);
  for (int64_t b = 0; b < micro_batch_; ++b) {
    const int64_t sequence = index * micro_batch_ + b;
    if (sequence >= sequences_->count()) break;
    SHERD_RETURN_IF_ERROR(sequences_->Fill(sequence, inputs + b * length, targets + b * length));
  }
  return absl::OkStatus();
}

}  // namespace sherd
