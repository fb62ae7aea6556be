#include "worker/evaluate/evaluate.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <numbers>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "kernels/cpu/cpu_ops.h"
#include "plan/job_spec.h"
#include "worker/dataset/job_dataset.h"
#include "worker/model/model.h"
#include "worker/sample/loaded_weights.h"

namespace sherd {
namespace {

constexpr int kMostWorkers = 1024;

absl::Status CheckOptions(const EvaluateOptions& options) {
  if (options.data.empty()) return absl::InvalidArgumentError("no file of data is named");
  if (options.workers < 1 || options.workers > kMostWorkers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers ", options.workers, " is out of range; it must be 1 to ", kMostWorkers));
  }
  if (options.seq_len < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--seq-len ", options.seq_len, " is out of range; it must be 0 (the context) or more"));
  }
  return absl::OkStatus();
}

// What the tokens stand for, where that is known.
absl::StatusOr<std::optional<TextCodec>> KnownCodec(const EvaluateOptions& options,
                                                    const LoadedWeights& weights) {
  absl::StatusOr<TextCodec> codec = CodecOf(weights, options.tokenizer);
  const bool text = IsText(options.format);
  // Of ids it is needed for one figure only, and "bytes" is what a job says that names none.
  if (!text && options.tokenizer.empty() && (!codec.ok() || codec->is_bytes())) {
    return std::optional<TextCodec>();
  }
  if (!codec.ok()) return codec.status();
  if (text && codec->vocab() > weights.shape().vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokens of text are bytes, 256 of them, but the model's vocabulary is ",
                     weights.shape().vocab, "; name a file of ids and its --format"));
  }
  return std::optional<TextCodec>(*std::move(codec));
}

absl::StatusOr<OpenedSequences> OpenData(const EvaluateOptions& options,
                                         const LoadedWeights& weights, int64_t seq_len) {
  v1::DataSpec data;
  data.set_format(options.format);
  data.set_tokenizer(options.tokenizer.empty() ? weights.manifest.info.tokenizer
                                               : options.tokenizer);
  // What text becomes: mapped when it is open, and gone afterwards.
  std::string scratch = (std::filesystem::temp_directory_path() / "sherd-eval.XXXXXX").string();
  if (mkdtemp(scratch.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat(scratch, " cannot be made"));
  }
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    std::filesystem::remove_all(scratch, ignored);
  };
  DatasetOptions dataset;
  dataset.cache_directory = scratch;
  dataset.threads = options.workers;
  return OpenSequences(data, options.data, seq_len, weights.shape().vocab, Tail::kKept, dataset);
}

// What one sequence comes to.
struct SequenceFigures {
  double loss = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;
};

// Computes sequences with a model of its own over shared weights. For one thread.
class SequenceEvaluator {
 public:
  SequenceEvaluator(const LoadedWeights& weights, const Sequences& sequences,
                    const std::optional<TextCodec>& codec)
      : weights_(weights),
        sequences_(sequences),
        codec_(codec),
        ops_(MakeCpuOps(/*threads=*/1, meter_)),
        model_(MakeModel(weights.shape(), weights.inventory, 1, sequences.seq_len(),
                         KeptActivations::kNothing, *ops_, meter_)),
        inputs_(static_cast<size_t>(sequences.seq_len())),
        targets_(inputs_.size()) {}

  absl::StatusOr<SequenceFigures> Compute(int64_t index) {
    SHERD_RETURN_IF_ERROR(sequences_.Fill(index, inputs_.data(), targets_.data()));
    const MicroBatch batch{1, sequences_.seq_len(), inputs_.data(), targets_.data()};
    for (size_t unit = 0; unit < weights_.units.size(); ++unit) {
      model_->Forward(static_cast<int>(unit), weights_.units, batch);
    }
    SequenceFigures figures;
    figures.loss = model_->Loss(weights_.units, batch);
    for (const int32_t target : targets_) {
      if (target < 0) continue;
      ++figures.tokens;
      if (codec_.has_value()) figures.bytes += codec_->TextBytes(static_cast<TokenId>(target));
    }
    return figures;
  }

 private:
  const LoadedWeights& weights_;
  const Sequences& sequences_;
  const std::optional<TextCodec>& codec_;
  MemoryMeter meter_;
  const std::unique_ptr<Ops> ops_;
  const std::unique_ptr<Model> model_;
  std::vector<int32_t> inputs_;
  std::vector<int32_t> targets_;
};

// What the workers share: which sequences are left, and what those that are done came to.
class Progress {
 public:
  explicit Progress(int64_t sequences) : figures_(static_cast<size_t>(sequences)) {}

  // Nothing when all are taken, or after an error.
  std::optional<int64_t> Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    if (!status_.ok() || next_ == static_cast<int64_t>(figures_.size())) return std::nullopt;
    return next_++;
  }
  void Put(int64_t sequence, const absl::StatusOr<SequenceFigures>& figures)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    status_.Update(figures.status());
    if (figures.ok()) figures_[static_cast<size_t>(sequence)] = *figures;
  }
  absl::StatusOr<std::vector<SequenceFigures>> Result() ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    return figures_;
  }

 private:
  absl::Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<SequenceFigures> figures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const EvaluateOptions& options) {
  SHERD_RETURN_IF_ERROR(CheckOptions(options));
  MemoryMeter meter;
  SHERD_ASSIGN_OR_RETURN(const LoadedWeights weights, LoadWeights(options.weights, meter));
  const int64_t context = weights.shape().context;
  if (options.seq_len > context) {
    return absl::InvalidArgumentError(absl::StrCat("--seq-len ", options.seq_len,
                                                   " is more than the model's context, ", context));
  }
  SHERD_ASSIGN_OR_RETURN(const std::optional<TextCodec> codec, KnownCodec(options, weights));
  SHERD_ASSIGN_OR_RETURN(
      const OpenedSequences opened,
      OpenData(options, weights, options.seq_len > 0 ? options.seq_len : context));
  const Sequences& sequences = *opened.sequences;

  Progress progress(sequences.count());
  std::vector<std::jthread> workers;
  const auto count = static_cast<int>(std::min<int64_t>(options.workers, sequences.count()));
  for (int worker = 0; worker < count; ++worker) {
    workers.emplace_back([&] {
      SequenceEvaluator evaluator(weights, sequences, codec);
      while (const std::optional<int64_t> index = progress.Take()) {
        progress.Put(*index, evaluator.Compute(*index));
      }
    });
  }
  workers.clear();
  SHERD_ASSIGN_OR_RETURN(const std::vector<SequenceFigures> figures, progress.Result());

  Evaluation evaluation;
  evaluation.step = weights.manifest.info.step;
  evaluation.sequences = sequences.count();
  evaluation.note = opened.note;
  double loss = 0;
  int64_t bytes = 0;
  for (const SequenceFigures& sequence : figures) {
    loss += sequence.loss;
    evaluation.tokens += sequence.tokens;
    bytes += sequence.bytes;
  }
  evaluation.loss = loss / static_cast<double>(evaluation.tokens);
  if (!std::isfinite(evaluation.loss)) {
    return absl::DataLossError(absl::StrCat("the loss is ", evaluation.loss, ", not a number"));
  }
  evaluation.perplexity = std::exp(evaluation.loss);
  if (codec.has_value()) {
    evaluation.bytes = bytes;
    if (bytes > 0) {
      evaluation.bits_per_byte = loss / std::numbers::ln2 / static_cast<double>(bytes);
    }
  }
  return evaluation;
}

}  // namespace sherd
