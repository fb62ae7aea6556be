#include "worker/sample/loaded_weights.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/tokenizer_names.h"

namespace sherd {
namespace {

// Where the tensors of a checkpoint belong: nowhere, behind its weights, the optimizer's state.
// kInvalidArgument unless they are those of the model.
absl::StatusOr<std::vector<float*>> Destinations(const LoadedWeights& weights) {
  const Manifest& manifest = weights.manifest;
  std::vector<float*> destinations;
  size_t next = 0;
  for (size_t u = 0; u < weights.inventory.units.size(); ++u) {
    for (const Parameter& parameter : weights.inventory.units[u].parameters) {
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

}  // namespace

absl::StatusOr<LoadedWeights> LoadWeights(const std::string& directory, MemoryMeter& meter) {
  LoadedWeights weights;
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  weights.directory = WeightsDirectory(*files, directory);
  absl::StatusOr<Manifest> read = ReadManifest(weights.directory);
  if (!read.ok()) return HintAtWeights(*files, directory, read.status());
  weights.manifest = *std::move(read);
  const Manifest& manifest = weights.manifest;
  if (manifest.info.model.layers > static_cast<int64_t>(manifest.tensors.size())) {
    return absl::InvalidArgumentError(absl::StrCat(weights.directory, " has too few tensors"));
  }
  weights.inventory = BuildInventory(manifest.info.model);
  for (const Unit& unit : weights.inventory.units) {
    weights.buffers.emplace_back(meter, Pool::kParams,
                                 unit.elements * static_cast<int64_t>(sizeof(float)));
    weights.units.push_back({weights.buffers.back().data(), DType::kF32});
  }
  const auto destinations = Destinations(weights);
  if (!destinations.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.directory, " cannot be used: ", destinations.status().message()));
  }
  SHERD_RETURN_IF_ERROR(LoadTensors(weights.directory, manifest, [&](const StoredTensor& tensor) {
    return (*destinations)[static_cast<size_t>(&tensor - manifest.tensors.data())];
  }));
  return weights;
}

absl::StatusOr<TextCodec> CodecOf(const LoadedWeights& weights, const std::string& tokenizer) {
  const std::string& named = weights.manifest.info.tokenizer;
  const std::string path = tokenizer.empty() ? named : tokenizer;
  if (path.empty() || path == kUnknownTokenizer) {
    return absl::InvalidArgumentError(absl::StrCat(
        weights.directory,
        " does not say what its tokens stand for, as weights that were imported without "
        "a tokenizer.json; give --tokenizer bytes, or --tokenizer PATH of the "
        "tokenizer.json"));
  }
  absl::StatusOr<TextCodec> codec = TextCodec::Load(path);
  if (!codec.ok() && tokenizer.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.directory, " names the tokenizer ", named,
                     ", a path as the workers saw it, which cannot be read here (",
                     codec.status().message(), "); give --tokenizer PATH of the tokenizer.json"));
  }
  if (!codec.ok()) return codec.status();
  if (!codec->is_bytes() && codec->vocab() > weights.shape().vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", codec->vocab(), " ids, the model ", weights.shape().vocab));
  }
  return codec;
}

}  // namespace sherd
