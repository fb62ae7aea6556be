#include "worker/pretrained/pretrained_folder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "plan/model_config.h"
#include "worker/pretrained/published_tensors.h"

namespace sherd {
namespace {

// More names than these tell nobody more.
constexpr size_t kMostNamed = 4;

// "a, b, c, d and 7 more".
std::string NamesText(const std::vector<std::string>& names) {
  if (names.size() <= kMostNamed) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kMostNamed, ", "), " and ",
                      names.size() - kMostNamed, " more");
}

absl::Status Wrong(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// The embedding and a head of its own have one shape.
PublishedTensor HeadOf(const PublishedTensor& embedding) {
  PublishedTensor head = embedding;
  head.parameter = head.name = kHeadParameter;
  return head;
}

// What a folder may hold, by our names.
std::map<std::string, PublishedTensor> ExpectedTensors(const ModelShape& shape) {
  std::map<std::string, PublishedTensor> expected;
  const std::vector<PublishedTensor> tensors = PublishedTensorsOf(shape);
  for (const PublishedTensor& tensor : tensors) expected[tensor.parameter] = tensor;
  if (shape.tie_embeddings) expected[kHeadParameter] = HeadOf(tensors.front());
  return expected;
}

absl::Status CheckTensor(const std::string& path, const SafetensorsEntry& found,
                         const PublishedTensor& expected) {
  if (found.shape != expected.shape) {
    return Wrong(path,
                 absl::StrCat("tensor \"", found.name, "\" has the shape ", ShapeText(found.shape),
                              " where config.json asks for ", ShapeText(expected.shape)));
  }
  if (ElementTypeFromSafetensors(found.dtype).has_value()) return absl::OkStatus();
  return Wrong(path, absl::StrCat("tensor \"", found.name, "\" is of type ", found.dtype,
                                  ", which is not supported: F32, BF16 and F16 are"));
}

}  // namespace

absl::StatusOr<PretrainedFolder> PretrainedFolder::Open(const std::string& root,
                                                        const std::string& folder) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string config_path = absl::StrCat(path, "/", kModelConfigFile);
  SHERD_ASSIGN_OR_RETURN(const std::string config,
                         ReadWholeBelow(root, config_path, kMaxModelConfigBytes));
  absl::StatusOr<v1::ModelSpec> model = ParseModelConfig(config);
  if (!model.ok()) return Wrong(config_path, model.status().message());
  SHERD_ASSIGN_OR_RETURN(WeightFiles weights, OpenWeightFiles(root, path));
  PretrainedFolder opened(std::move(path), *std::move(model), std::move(weights.files));
  SHERD_RETURN_IF_ERROR(opened.FindSources(weights.entries));
  return opened;
}

absl::Status PretrainedFolder::FindSources(const std::vector<WeightFiles::Entry>& entries) {
  const ModelShape model = shape();
  const std::map<std::string, PublishedTensor> expected = ExpectedTensors(model);
  std::vector<std::string> strangers;
  for (const WeightFiles::Entry& entry : entries) {
    const SafetensorsEntry& tensor = entry.tensor;
    std::string parameter = ParameterNameOf(model.arch, tensor.name);
    if (IsBuffer(model.arch, parameter)) continue;
    const auto found = expected.find(parameter);
    if (found == expected.end()) {
      strangers.push_back(absl::StrCat(tensor.name, " ", ShapeText(tensor.shape)));
      continue;
    }
    SHERD_RETURN_IF_ERROR(CheckTensor(files_[entry.file].name(), tensor, found->second));
    const Source source{entry.file, tensor.offset, *ElementTypeFromSafetensors(tensor.dtype),
                        found->second.transposed, tensor.name};
    const auto [place, is_new] = sources_.emplace(std::move(parameter), source);
    if (!is_new) {
      return Wrong(path_, absl::StrCat("\"", place->second.name, "\" and \"", tensor.name,
                                       "\" are the same tensor of the model; give one"));
    }
  }
  if (!strangers.empty()) {
    return Wrong(path_, absl::StrCat("it holds tensors that a model of this config.json does not "
                                     "have: ",
                                     NamesText(strangers)));
  }
  std::vector<std::string> missing;
  for (const PublishedTensor& tensor : PublishedTensorsOf(model)) {
    if (sources_.contains(tensor.parameter)) continue;
    missing.push_back(absl::StrCat(tensor.name, " ", ShapeText(tensor.shape)));
  }
  if (missing.empty()) return absl::OkStatus();
  return Wrong(path_, absl::StrCat("tensors of the model that config.json describes are missing: ",
                                   NamesText(missing)));
}

bool PretrainedFolder::StoresAllAs(ElementType type) const {
  return std::all_of(sources_.begin(), sources_.end(),
                     [type](const auto& source) { return source.second.type == type; });
}

}  // namespace sherd
