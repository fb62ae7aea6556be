#include "worker/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/cpu_ops.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/readable_file.h"
#include "worker/model/model.h"
#include "worker/sample/token_sampler.h"
#include "worker/tokenizer/tokenizer_json.h"

namespace sherd {
namespace {

constexpr int64_t kBytes = 256;

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

// The units' flat buffers.
struct Weights {
  std::vector<Buffer> buffers;
  std::vector<UnitParams> units;
};

// Where the tensors of a checkpoint belong: nowhere, behind its weights, the optimizer's state.
// kInvalidArgument unless they are those of the model.
absl::StatusOr<std::vector<float*>> Destinations(const Manifest& manifest,
                                                 const Inventory& inventory,
                                                 const Weights& weights) {
  std::vector<float*> destinations;
  size_t next = 0;
  for (size_t u = 0; u < inventory.units.size(); ++u) {
    for (const Parameter& parameter : inventory.units[u].parameters) {
      if (next == manifest.tensors.size() || manifest.tensors[next].name != parameter.name ||
          manifest.tensors[next].shape != parameter.shape) {
        return absl::InvalidArgumentError(
            absl::StrCat("its tensors are not those of its model: ", parameter.name,
                         " is missing or has another shape"));
      }
      destinations.push_back(weights.buffers[u].as<float>() + parameter.offset);
      ++next;
    }
  }
  if (manifest.info.training && manifest.tensors.size() == 3 * next) {
    destinations.resize(manifest.tensors.size(), nullptr);
    next = manifest.tensors.size();
  }
  if (next != manifest.tensors.size()) {
    return absl::InvalidArgumentError("it holds tensors that are not of its model");
  }
  return destinations;
}

absl::StatusOr<Weights> LoadWeights(const std::string& directory, const Manifest& manifest,
                                    const Inventory& inventory, MemoryMeter& meter) {
  Weights weights;
  for (const Unit& unit : inventory.units) {
    weights.buffers.emplace_back(meter, Pool::kParams,
                                 unit.elements * static_cast<int64_t>(sizeof(float)));
    weights.units.push_back({weights.buffers.back().data(), DType::kF32});
  }
  const auto destinations = Destinations(manifest, inventory, weights);
  if (!destinations.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " cannot be used: ", destinations.status().message()));
  }
  SHERD_RETURN_IF_ERROR(LoadTensors(directory, manifest, [&](const StoredTensor& tensor) {
    return (*destinations)[static_cast<size_t>(&tensor - manifest.tensors.data())];
  }));
  return weights;
}

// Runs the model over the newest tokens that fit its context.
class Generator {
 public:
  Generator(const ModelShape& shape, const Inventory& inventory, const Weights& weights, Ops& ops,
            MemoryMeter& meter)
      : shape_(shape),
        weights_(weights),
        model_(
            MakeModel(shape, inventory, 1, shape.context, KeptActivations::kNothing, ops, meter)) {}

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
  const Weights& weights_;
  const std::unique_ptr<Model> model_;
  std::vector<int32_t> window_;
};

absl::Status Print(absl::string_view bytes, std::ostream& out) {
  if (out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("the output cannot be written");
}

// What ids mean.
class Words {
 public:
  // A tokenizer.json; "" for tokens that are bytes. kInvalidArgument names the file.
  static absl::StatusOr<Words> Load(const std::string& path) {
    if (path.empty()) return Words(std::nullopt);
    SHERD_ASSIGN_OR_RETURN(const std::string json, ReadWhole(path, kMostTokenizerFileBytes));
    absl::StatusOr<Tokenizer> tokenizer = ParseTokenizer(json);
    if (tokenizer.ok()) return Words(*std::move(tokenizer));
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(path, ": ", tokenizer.status().message()));
  }

  int64_t vocab() const { return tokenizer_.has_value() ? tokenizer_->vocab() : kBytes; }
  std::vector<TokenId> Encode(absl::string_view text) const {
    std::vector<TokenId> ids;
    if (tokenizer_.has_value()) {
      Encoder(*tokenizer_).Append(text, ids);
    } else {
      for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    }
    return ids;
  }
  std::string Decode(TokenId id) const {
    return tokenizer_.has_value() ? std::string(tokenizer_->TokenBytes(id))
                                  : std::string(1, static_cast<char>(id));
  }

 private:
  explicit Words(std::optional<Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::optional<Tokenizer> tokenizer_;
};

}  // namespace

absl::Status RunSample(const SampleOptions& options, std::ostream& out) {
  SHERD_RETURN_IF_ERROR(CheckOptions(options));
  const std::string directory = WeightsDirectory(*MakePosixFileSystem(), options.weights);
  SHERD_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory));
  const ModelShape& shape = manifest.info.model;
  if (manifest.info.tokenizer != "bytes" && options.tokenizer.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " is not of a model whose tokens are bytes; give --tokenizer"));
  }
  if (shape.layers > static_cast<int64_t>(manifest.tensors.size())) {
    return absl::InvalidArgumentError(absl::StrCat(directory, " has too few tensors"));
  }
  SHERD_ASSIGN_OR_RETURN(const Words words, Words::Load(options.tokenizer));
  if (!options.tokenizer.empty() && words.vocab() > shape.vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.tokenizer, " has ", words.vocab(), " ids, the model ", shape.vocab));
  }
  const std::vector<TokenId> context = words.Encode(options.prompt.empty() ? "\n" : options.prompt);
  for (const TokenId token : context) {
    if (token >= shape.vocab) {
      return absl::InvalidArgumentError("the prompt holds bytes outside of the vocabulary");
    }
  }
  MemoryMeter meter;
  const Inventory inventory = BuildInventory(shape);
  SHERD_ASSIGN_OR_RETURN(const Weights weights, LoadWeights(directory, manifest, inventory, meter));
  const std::unique_ptr<Ops> ops = MakeCpuOps(options.threads, meter);
  Generator generator(shape, inventory, weights, *ops, meter);
  for (const TokenId token : context) generator.Append(static_cast<int32_t>(token));
  SHERD_RETURN_IF_ERROR(Print(options.prompt, out));

  TokenSampler sampler(options.temperature, options.top_k, options.seed);
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t token = sampler.Draw(generator.NextLogits(words.vocab()));
    SHERD_RETURN_IF_ERROR(Print(words.Decode(static_cast<TokenId>(token)), out));
    generator.Append(static_cast<int32_t>(token));
  }
  return absl::OkStatus();
}

}  // namespace sherd
