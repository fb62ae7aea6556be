#include "worker/pretrained/published_tensors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "plan/parameters.h"

namespace sherd {
namespace {

constexpr absl::string_view kGpt2Prefix = "transformer.";
constexpr absl::string_view kLlamaPrefix = "model.";

}  // namespace

int64_t PublishedTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

std::vector<PublishedTensor> PublishedTensorsOf(const ModelShape& shape) {
  const bool gpt2 = shape.arch == Architecture::kGpt2;
  const Inventory inventory = BuildInventory(shape);
  std::vector<PublishedTensor> tensors;
  for (const Unit& unit : inventory.units) {
    for (const Parameter& parameter : unit.parameters) {
      PublishedTensor tensor;
      tensor.parameter = parameter.name;
      tensor.name = gpt2 && parameter.name != kHeadParameter
                        ? absl::StrCat(kGpt2Prefix, parameter.name)
                        : parameter.name;
      tensor.shape = parameter.slice.shape;
      tensor.transposed = gpt2 && unit.kind == UnitKind::kBlock && tensor.shape.size() == 2;
      if (tensor.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

std::string ParameterNameOf(Architecture arch, absl::string_view published) {
  if (arch == Architecture::kGpt2) return std::string(absl::StripPrefix(published, kGpt2Prefix));
  if (published == kHeadParameter || absl::StartsWith(published, kLlamaPrefix)) {
    return std::string(published);
  }
  return absl::StrCat(kLlamaPrefix, published);
}

bool IsBuffer(Architecture arch, absl::string_view parameter) {
  if (arch == Architecture::kLlama) return absl::EndsWith(parameter, ".rotary_emb.inv_freq");
  return absl::StartsWith(parameter, "h.") && (absl::EndsWith(parameter, ".attn.bias") ||
                                               absl::EndsWith(parameter, ".attn.masked_bias"));
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace sherd
