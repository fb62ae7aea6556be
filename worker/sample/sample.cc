#include "worker/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/terminal_text.h"
#include "kernels/cpu/cpu_ops.h"
#include "worker/model/model.h"
#include "worker/sample/loaded_weights.h"
#include "worker/sample/token_sampler.h"

namespace sherd {
namespace {

absl::Status CheckOptions(const SampleOptions& options) {
  const auto wrong = [](absl::string_view flag, auto value, absl::string_view rule) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", value, " is out of range; it must be ", rule));
  };
  if (options.tokens < 0) return wrong("--tokens", options.tokens, "0 or more");
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    return wrong("--temperature", options.temperature, "0 or a finite number above");
  }
  if (options.top_k < 0) return wrong("--top-k", options.top_k, "0 (all) or more");
  if (options.threads < 1) return wrong("--threads", options.threads, "1 or more");
  return absl::OkStatus();
}

// Runs the model over the newest tokens that fit its context.
class Generator {
 public:
  Generator(const LoadedWeights& weights, Ops& ops, MemoryMeter& meter)
      : shape_(weights.shape()),
        weights_(weights),
        model_(MakeModel(shape_, weights.inventory, 1, shape_.context, KeptActivations::kNothing,
                         ops, meter)) {}

  void Append(int32_t token) {
    if (static_cast<int64_t>(window_.size()) == shape_.context) window_.erase(window_.begin());
    window_.push_back(token);
  }

  // Of the token after the window, for ids below `most`.
  absl::Span<const float> NextLogits(int64_t most) {
    const auto tokens = static_cast<int64_t>(window_.size());
    const MicroBatch micro_batch{1, tokens, window_.data(), nullptr};
    for (size_t unit = 0; unit < weights_.units.size(); ++unit) {
      model_->Forward(static_cast<int>(unit), weights_.units, micro_batch);
    }
    return {model_->Logits(weights_.units, tokens - 1, 1),
            static_cast<size_t>(std::min(shape_.vocab, most))};
  }

 private:
  const ModelShape shape_;
  const LoadedWeights& weights_;
  const std::unique_ptr<Model> model_;
  std::vector<int32_t> window_;
};

// Where the text goes.
class Printer {
 public:
  Printer(std::ostream& out, bool for_terminal) : out_(out), for_terminal_(for_terminal) {}

  absl::Status Print(absl::string_view bytes) {
    return Write(for_terminal_ ? text_.Add(bytes) : std::string(bytes));
  }
  absl::Status Finish() { return Write(text_.Finish()); }

 private:
  absl::Status Write(const std::string& bytes) {
    if (out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
      return absl::OkStatus();
    }
    return absl::UnavailableError("the output cannot be written");
  }

  std::ostream& out_;
  const bool for_terminal_;
  TerminalText text_;
};

}  // namespace

absl::Status RunSample(const SampleOptions& options, std::ostream& out) {
  SHERD_RETURN_IF_ERROR(CheckOptions(options));
  MemoryMeter meter;
  SHERD_ASSIGN_OR_RETURN(const LoadedWeights weights, LoadWeights(options.weights, meter));
  const ModelShape& shape = weights.shape();
  SHERD_ASSIGN_OR_RETURN(const TextCodec codec, CodecOf(weights, options.tokenizer));
  const std::vector<TokenId> context = codec.Encode(options.prompt.empty() ? "\n" : options.prompt);
  for (const TokenId token : context) {
    if (token >= shape.vocab) {
      return absl::InvalidArgumentError("the prompt holds bytes outside of the vocabulary");
    }
  }
  const std::unique_ptr<Ops> ops = MakeCpuOps(options.threads, meter);
  Generator generator(weights, *ops, meter);
  for (const TokenId token : context) generator.Append(static_cast<int32_t>(token));
  Printer printer(out, options.for_terminal);
  SHERD_RETURN_IF_ERROR(printer.Print(options.prompt));

  TokenSampler sampler(options.temperature, options.top_k, options.seed);
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t token = sampler.Draw(generator.NextLogits(codec.vocab()));
    SHERD_RETURN_IF_ERROR(printer.Print(codec.Decode(static_cast<TokenId>(token))));
    generator.Append(static_cast<int32_t>(token));
  }
  return printer.Finish();
}

}  // namespace sherd
