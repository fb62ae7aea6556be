#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/model_shape.h"
#include "sherd/v1/job.pb.h"
#include "worker/checkpoint/training_state.h"
#include "worker/pretrained/element_type.h"
#include "worker/pretrained/weight_files.h"

namespace sherd {

// A GPT-2 or Llama as the common Python stack (transformers) publishes it: config.json and
// safetensors, in one file or several. Thread-safe once it is open.
class PretrainedFolder {
 public:
  // Reads config.json and the headers of all files in `folder` below `root` (worker/data/roots.h),
  // and checks that the tensors are those of the model: missing ones, further ones and those of
  // another shape or of a type other than F32, BF16 and F16 are named, with what was expected. A
  // tied model may have a head, which must then equal the embedding (Load checks it). kNotFound,
  // kPermissionDenied, kInvalidArgument: one sentence with the file.
  static absl::StatusOr<PretrainedFolder> Open(const std::string& root, const std::string& folder);

  const std::string& path() const { return path_; }
  // The complete shape, without `from`.
  const v1::ModelSpec& model() const { return model_; }
  ModelShape shape() const { return ShapeOf(model_); }
  // Whether all weights are stored as `type`.
  bool StoresAllAs(ElementType type) const;

  // Fills targets whose names and shapes are those of the model's parameters, and returns how many
  // bytes were read for it: only the ranges that hold something of them. On at most `threads`
  // threads, each of which needs a few MiB beside the targets. kDataLoss when a file has become
  // shorter or a tied head differs; kAborted soon after `stop` says so. When it fails targets may
  // be filled in part.
  absl::StatusOr<int64_t> Load(absl::Span<const TensorTarget> targets, int threads,
                               const std::function<bool()>& stop = nullptr) const;

 private:
  // Where a parameter's values are.
  struct Source {
    size_t file = 0;
    // From the start of the file.
    int64_t offset = 0;
    ElementType type = ElementType::kF32;
    bool transposed = false;
    // As the user's file calls it.
    std::string name;
  };
  struct Part;
  class Reader;

  PretrainedFolder(std::string path, v1::ModelSpec model, std::vector<InputFile> files)
      : path_(std::move(path)), model_(std::move(model)), files_(std::move(files)) {}
  absl::Status FindSources(const std::vector<WeightFiles::Entry>& entries);

  std::string path_;
  v1::ModelSpec model_;
  std::vector<InputFile> files_;
  // By our name of the parameter; of a tied model also its head, if there is one.
  std::map<std::string, Source> sources_;
};

}  // namespace sherd
