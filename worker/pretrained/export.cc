#include "worker/pretrained/export.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "plan/model_config.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/readable_file.h"
#include "worker/checkpoint/shard_files.h"
#include "worker/checkpoint/tokenizer_names.h"
#include "worker/checkpoint/training_state.h"
#include "worker/pretrained/export_plan.h"
#include "worker/pretrained/parallel_for.h"
#include "worker/pretrained/shared_output.h"
#include "worker/pretrained/weight_files.h"

namespace sherd {
namespace {

// Four chunks of a checkpoint's checksums.
constexpr int64_t kChunkElements = int64_t{4} << 20;
constexpr int64_t kMaxTokenizerBytes = int64_t{128} << 20;

// Converts a checkpoint's tensors into the files of a plan.
class Converter {
 public:
  Converter(const std::string& checkpoint, const Manifest& manifest, const ExportPlan& plan,
            ElementType type)
      : checkpoint_(checkpoint), manifest_(manifest), plan_(plan), type_(type) {}

  absl::Status CreateFiles(const std::string& directory) {
    for (size_t file = 0; file < plan_.files.size(); ++file) {
      SHERD_ASSIGN_OR_RETURN(SharedOutput output,
                             SharedOutput::Create(absl::StrCat(directory, "/", plan_.files[file])));
      const std::string& header = plan_.headers[file];
      SHERD_RETURN_IF_ERROR(
          output.Write(0, {reinterpret_cast<const std::byte*>(header.data()), header.size()}));
      outputs_.push_back(std::move(output));
    }
    return absl::OkStatus();
  }

  absl::Status Convert(const ExportChunk& chunk) const {
    const PlacedTensor& placed = plan_.tensors[chunk.tensor];
    const PublishedTensor& tensor = placed.tensor;
    std::vector<int64_t> shape = tensor.shape;
    if (tensor.transposed) std::swap(shape[0], shape[1]);
    const int64_t count = chunk.end - chunk.begin;
    std::vector<float> values(static_cast<size_t>(count));
    const TensorTarget target{tensor.parameter, shape,     chunk.columns,
                              chunk.begin,      chunk.end, values.data()};
    SHERD_RETURN_IF_ERROR(LoadTargets(checkpoint_, manifest_, {&target, 1}).status());
    if (tensor.transposed) values = Transposed(values, shape.front(), chunk.columns.size());
    std::vector<std::byte> bytes(static_cast<size_t>(count * BytesOf(type_)));
    if (EncodeElements(type_, values.data(), count, bytes.data()) > 0) {
      return absl::OutOfRangeError(absl::StrCat("\"", tensor.name, "\" holds values that ",
                                                NameOf(type_),
                                                " cannot hold; export as another type"));
    }
    return outputs_[placed.file].Write(placed.offset + chunk.published_at * BytesOf(type_), bytes);
  }

  absl::Status Sync(size_t file) const { return outputs_[file].Sync(); }

 private:
  static std::vector<float> Transposed(const std::vector<float>& values, int64_t rows,
                                       int64_t columns) {
    std::vector<float> transposed(values.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        transposed[static_cast<size_t>(column * rows + row)] =
            values[static_cast<size_t>(row * columns + column)];
      }
    }
    return transposed;
  }

  const std::string& checkpoint_;
  const Manifest& manifest_;
  const ExportPlan& plan_;
  const ElementType type_;
  std::vector<SharedOutput> outputs_;
};

// Finds the tokenizer that belongs to the weights, and puts it beside them.
absl::Status CopyTokenizer(FileSystem& files, const ExportOptions& options,
                           const std::string& named, const std::string& directory,
                           Exported& exported) {
  const std::string& path = options.tokenizer.empty() ? named : options.tokenizer;
  exported.tokens_are_bytes = path == kBytesTokenizer;
  if (path.empty() || path == kBytesTokenizer || path == kUnknownTokenizer) return absl::OkStatus();
  const absl::StatusOr<std::string> text = ReadWhole(path, kMaxTokenizerBytes);
  if (!text.ok() && options.tokenizer.empty()) {
    exported.missing_tokenizer = path;
    return absl::OkStatus();
  }
  SHERD_RETURN_IF_ERROR(text.status());
  exported.tokenizer = path;
  return WriteFile(files, absl::StrCat(directory, "/tokenizer.json"), *text);
}

absl::StatusOr<Manifest> ReadWeights(FileSystem& files, const std::string& directory) {
  absl::StatusOr<Manifest> manifest = ReadSoundManifest(directory);
  if (!manifest.ok()) return HintAtWeights(files, directory, manifest.status());
  if (manifest->info.model.layers <= static_cast<int64_t>(manifest->tensors.size())) {
    return manifest;
  }
  return absl::InvalidArgumentError(absl::StrCat(directory, " has too few tensors"));
}

}  // namespace

std::string TokenizerNote(const Exported& exported) {
  if (!exported.tokenizer.empty()) return "";
  if (!exported.missing_tokenizer.empty()) {
    return absl::StrCat("the tokenizer ", exported.missing_tokenizer,
                        " is not here; copy it beside the weights as tokenizer.json");
  }
  if (exported.tokens_are_bytes) {
    return "the model's tokens are bytes, so no tokenizer.json lies beside the weights; imported "
           "again, they are used with --tokenizer bytes";
  }
  return "the checkpoint does not say what its tokens stand for; put the tokenizer.json beside the "
         "weights, or name it with --tokenizer";
}

absl::StatusOr<Exported> ExportCheckpoint(const ExportOptions& options) {
  std::string target = options.folder;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  SHERD_RETURN_IF_ERROR(CheckFresh(target));
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const std::string checkpoint = WeightsDirectory(*files, options.checkpoint);
  SHERD_ASSIGN_OR_RETURN(const Manifest manifest, ReadWeights(*files, checkpoint));
  const ModelShape& shape = manifest.info.model;
  const ExportPlan plan = PlanExport(shape, options.type, options.shard_bytes);

  Exported exported;
  exported.written = {target, shape, 0, 0, static_cast<int64_t>(plan.files.size())};
  for (const PlacedTensor& placed : plan.tensors) {
    exported.written.parameters += placed.tensor.elements();
  }
  exported.written.bytes = plan.weight_bytes;
  for (const std::string& header : plan.headers) {
    exported.written.bytes += static_cast<int64_t>(header.size());
  }

  const std::string parent = ParentOf(target);
  const std::string staging =
      absl::StrCat(parent, "/.", std::filesystem::path(target).filename().string(), ".export-",
                   getpid(), ".partial");
  SHERD_RETURN_IF_ERROR(files->Remove(staging));
  SHERD_RETURN_IF_ERROR(files->MakeDirectories(staging));
  absl::Cleanup discard = [&] { files->Remove(staging).IgnoreError(); };
  Converter converter(checkpoint, manifest, plan, options.type);
  SHERD_RETURN_IF_ERROR(converter.CreateFiles(staging));
  const std::vector<ExportChunk> chunks = CutIntoChunks(plan, kChunkElements);
  SHERD_RETURN_IF_ERROR(ParallelFor(chunks.size(), options.threads, [&](size_t index) {
    return converter.Convert(chunks[index]);
  }));
  SHERD_RETURN_IF_ERROR(ParallelFor(plan.files.size(), options.threads,
                                    [&](size_t file) { return converter.Sync(file); }));
  if (plan.files.size() > 1) {
    SHERD_RETURN_IF_ERROR(
        WriteFile(*files, absl::StrCat(staging, "/", kWeightsIndexFile), FormatWeightsIndex(plan)));
  }
  SHERD_RETURN_IF_ERROR(CopyTokenizer(*files, options, manifest.info.tokenizer, staging, exported));
  SHERD_RETURN_IF_ERROR(WriteFile(*files, absl::StrCat(staging, "/", kModelConfigFile),
                                  FormatModelConfig(shape, TorchNameOf(options.type))));
  SHERD_RETURN_IF_ERROR(files->SyncDirectory(staging));
  // Takes the place of an empty directory, never of one that holds something.
  SHERD_RETURN_IF_ERROR(files->Rename(staging, target));
  std::move(discard).Cancel();
  SHERD_RETURN_IF_ERROR(files->SyncDirectory(parent));
  return exported;
}

}  // namespace sherd
