#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"

namespace sherd {

// Weights of a tiny model, whole, with values that tell where they belong.
struct TinyWeights {
  explicit TinyWeights(float base);
  // The part of rank `rank` of `world` of every unit, cut into nearly equal ranges.
  std::vector<TensorRange> Ranges(int rank, int world) const;

  ModelShape shape;
  Inventory inventory;
  // A flat buffer a unit.
  std::vector<std::vector<float>> units;
};

// All that a job's ranks do to leave a checkpoint, in one process; the first error.
absl::Status Save(FileSystem& files, const std::string& directory, const TinyWeights& weights,
                  int world, int64_t step);

// The step of the checkpoint, after reading all of it; tensors go to `units`.
absl::StatusOr<int64_t> Load(const std::string& directory, std::vector<std::vector<float>>& units);

// Of three tensors in one file: a matrix in two runs of its elements, a vector, and a matrix in two
// blocks of columns, the first of them in two runs.
Manifest SmallManifest();

// The real file system until its n-th call, which fails; from then on everything fails, as after a
// crash, or only that one call, as with a full disk. Counts durability calls but leaves them out:
// no test can cut the power.
class FaultyFileSystem final : public FileSystem {
 public:
  enum class Fault { kCrash, kOnce };
  explicit FaultyFileSystem(int64_t failing_call = INT64_MAX, Fault fault = Fault::kOnce);

  // Counts the call; false when it must fail.
  bool Allow();
  int64_t calls() const { return calls_; }

  absl::Status MakeDirectories(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status RenameOrExchange(const std::string& from, const std::string& to) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;

 private:
  const std::unique_ptr<FileSystem> real_ = MakePosixFileSystem();
  const int64_t failing_call_;
  const Fault fault_;
  int64_t calls_ = 0;
};

}  // namespace sherd
