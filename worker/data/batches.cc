#include "worker/data/batches.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// One sequence: inputs are tokens [begin, begin + count), targets the ones after each.
absl::Status FillSequence(const TokenSource& source, int64_t vocab, int64_t begin, int64_t count,
                          int32_t* inputs, int32_t* targets) {
  std::vector<int32_t> window(static_cast<size_t>(count) + 1);
  SHERD_RETURN_IF_ERROR(source.Read(begin, count + 1, window.data()));
  // A larger token would index past the embedding: files may change while a job runs.
  for (const int32_t token : window) {
    if (token < 0 || token >= vocab) {
      return absl::OutOfRangeError(absl::StrCat("the data holds token ", token,
                                                ", but model.vocab is ", vocab,
                                                "; it must be above every token"));
    }
  }
  std::copy_n(window.begin(), count, inputs);
  std::copy_n(window.begin() + 1, count, targets);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingData> TrainingData::Make(std::unique_ptr<TokenSource> source,
                                                const BatchOptions& options) {
  const int64_t windows = (source->tokens() - 1) / options.seq_len;
  if (windows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the training data has ", source->tokens(), " tokens, but one sequence takes ",
                     options.seq_len, " and the one after; give more data or a shorter seq_len"));
  }
  return TrainingData(std::move(source), options, windows);
}

absl::Status TrainingData::FillMicroBatch(int64_t step, int64_t g, int32_t* inputs,
                                          int32_t* targets) const {
  const int64_t length = options_.seq_len;
  const int64_t first = (step - 1) * options_.global_batch + g * options_.micro_batch;
  for (int64_t b = 0; b < options_.micro_batch; ++b) {
    SHERD_RETURN_IF_ERROR(FillSequence(*source_, options_.vocab, order_.Window(first + b) * length,
                                       length, inputs + b * length, targets + b * length));
  }
  return absl::OkStatus();
}

absl::StatusOr<EvaluationData> EvaluationData::Make(std::unique_ptr<TokenSource> source,
                                                    const BatchOptions& options) {
  if (source->tokens() < 2) {
    return absl::InvalidArgumentError(
        "the evaluation data has a single token, but predicting takes at least two");
  }
  return EvaluationData(std::move(source), options);
}

int64_t EvaluationData::micro_batches() const {
  const int64_t per_batch = options_.micro_batch * options_.seq_len;
  return (targets() + per_batch - 1) / per_batch;
}

absl::Status EvaluationData::FillMicroBatch(int64_t index, int32_t* inputs,
                                            int32_t* targets) const {
  const int64_t length = options_.seq_len;
  const int64_t size = options_.micro_batch * length;
  std::fill_n(inputs, size, 0);
  std::fill_n(targets, size, -1);
  for (int64_t b = 0; b < options_.micro_batch; ++b) {
    const int64_t begin = index * size + b * length;
    const int64_t count = std::min(length, this->targets() - begin);
    if (count <= 0) break;
    SHERD_RETURN_IF_ERROR(FillSequence(*source_, options_.vocab, begin, count, inputs + b * length,
                                       targets + b * length));
  }
  return absl::OkStatus();
}

}  // namespace sherd
