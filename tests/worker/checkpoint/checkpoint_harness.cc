#include "tests/worker/checkpoint/checkpoint_harness.h"

#include <algorithm>
#include <filesystem>

#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr int64_t kEpoch = 3;

absl::Status Injected() { return absl::ResourceExhaustedError("injected: no space left"); }

// Writes half of what a failing call was given.
class FaultyFile final : public OutputFile {
 public:
  FaultyFile(std::unique_ptr<OutputFile> real, FaultyFileSystem& files)
      : real_(std::move(real)), files_(files) {}
  absl::Status Append(absl::string_view bytes) override {
    if (files_.Allow()) return real_->Append(bytes);
    SHERD_RETURN_IF_ERROR(real_->Append(bytes.substr(0, bytes.size() / 2)));
    return Injected();
  }
  absl::Status Sync() override { return files_.Allow() ? absl::OkStatus() : Injected(); }

 private:
  const std::unique_ptr<OutputFile> real_;
  FaultyFileSystem& files_;
};

ModelShape TinyShape() {
  ModelShape shape;
  shape.layers = 1;
  shape.hidden = 3;
  shape.heads = shape.kv_heads = 1;
  shape.ffn = 5;
  shape.vocab = 7;
  shape.context = 2;
  return shape;
}

}  // namespace

TinyWeights::TinyWeights(float base) : shape(TinyShape()), inventory(BuildInventory(shape)) {
  for (const Unit& unit : inventory.units) {
    std::vector<float>& values = units.emplace_back();
    for (int64_t i = 0; i < unit.elements; ++i) values.push_back(base + static_cast<float>(i));
  }
}

std::vector<TensorRange> TinyWeights::Ranges(int rank, int world) const {
  std::vector<TensorRange> ranges;
  for (size_t u = 0; u < units.size(); ++u) {
    const int64_t shard = (inventory.units[u].elements + world - 1) / world;
    for (const Parameter& parameter : inventory.units[u].parameters) {
      const int64_t begin = std::max(parameter.offset, rank * shard);
      const int64_t end = std::min(parameter.offset + parameter.elements, (rank + 1) * shard);
      // An empty range is left out by WriteShard.
      ranges.push_back({parameter.name, parameter.shape, parameter.slice.columns,
                        begin - parameter.offset, std::max(begin, end) - parameter.offset,
                        units[u].data() + begin});
    }
  }
  return ranges;
}

absl::Status Save(FileSystem& files, const std::string& directory, const TinyWeights& weights,
                  int world, int64_t step) {
  const CheckpointInfo info{"job-1", step, kEpoch, weights.shape, "bytes"};
  SHERD_RETURN_IF_ERROR(PrepareStaging(files, directory, info));
  std::vector<ShardFileInfo> shards;
  for (int rank = 0; rank < world; ++rank) {
    SHERD_ASSIGN_OR_RETURN(const ShardFileInfo shard,
                           WriteShard(files, StagingDirectory(directory, info), rank, world,
                                      weights.Ranges(rank, world)));
    SHERD_ASSIGN_OR_RETURN(shards.emplace_back(), ShardFileInfo::Parse(shard.Serialize()));
  }
  return PublishCheckpoint(files, directory, info, WeightsOf(weights.inventory), shards);
}

absl::StatusOr<int64_t> Load(const std::string& directory, std::vector<std::vector<float>>& units) {
  SHERD_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory));
  const Inventory inventory = BuildInventory(manifest.info.model);
  units.clear();
  for (const Unit& unit : inventory.units) units.emplace_back(unit.elements, -1.0f);
  SHERD_RETURN_IF_ERROR(LoadTensors(directory, manifest, [&](const StoredTensor& tensor) -> float* {
    for (size_t u = 0; u < units.size(); ++u) {
      for (const Parameter& parameter : inventory.units[u].parameters) {
        if (parameter.name == tensor.name) return units[u].data() + parameter.offset;
      }
    }
    return nullptr;
  }));
  return manifest.info.step;
}

Manifest SmallManifest() {
  Manifest manifest;
  const TinyWeights weights(0);
  manifest.info = {"job", 1, 1, weights.shape, "bytes"};
  manifest.shards = {{"shard-00001-of-00001.safetensors", 1000, 17}};
  manifest.tensors = {{"a", "F32", {2, 3}, 6, {{{0, 3}, 0, 4, 0, 100}, {{0, 3}, 4, 6, 0, 200}}},
                      {"b", "F32", {1}, 1, {{{0, 1}, 0, 1, 0, 300}}},
                      {"c",
                       "F32",
                       {2, 5},
                       10,
                       {{{0, 2}, 0, 3, 0, 400}, {{0, 2}, 3, 4, 0, 500}, {{2, 5}, 0, 6, 0, 600}}}};
  for (StoredTensor& tensor : manifest.tensors) {
    for (StoredPiece& piece : tensor.pieces) piece.xxh3 = {17};
  }
  return manifest;
}

FaultyFileSystem::FaultyFileSystem(int64_t failing_call, Fault fault)
    : failing_call_(failing_call), fault_(fault) {}

bool FaultyFileSystem::Allow() {
  const int64_t call = calls_++;
  return fault_ == Fault::kOnce ? call != failing_call_ : call < failing_call_;
}

absl::Status FaultyFileSystem::MakeDirectories(const std::string& path) {
  if (!Allow()) return Injected();
  // The real one would sync.
  std::filesystem::create_directories(path);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OutputFile>> FaultyFileSystem::Create(const std::string& path) {
  if (!Allow()) return Injected();
  SHERD_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, real_->Create(path));
  return std::make_unique<FaultyFile>(std::move(file), *this);
}

absl::StatusOr<std::vector<std::string>> FaultyFileSystem::List(const std::string& directory) {
  if (!Allow()) return Injected();
  return real_->List(directory);
}

absl::Status FaultyFileSystem::SyncDirectory(const std::string& path) {
  return Allow() ? absl::OkStatus() : Injected();
}

absl::Status FaultyFileSystem::RenameOrExchange(const std::string& from, const std::string& to) {
  return Allow() ? real_->RenameOrExchange(from, to) : Injected();
}

absl::Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  return Allow() ? real_->Rename(from, to) : Injected();
}

absl::Status FaultyFileSystem::Remove(const std::string& path) {
  return Allow() ? real_->Remove(path) : Injected();
}

}  // namespace sherd
