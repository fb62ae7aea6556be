#include "client/parameter_groups.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/yaml_values.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

constexpr absl::string_view kExample = "[{parameters: '*.bias', weight_decay: 0}]";

using SetReal = void (v1::ParameterGroup::*)(double);

absl::Status Real(const YamlNode& node, v1::ParameterGroup& group, SetReal set) {
  double value = 0;
  SHERD_RETURN_IF_ERROR(ReadReal(node, value));
  (group.*set)(value);
  return absl::OkStatus();
}

absl::Status UnknownKey(const YamlNode& node) {
  const std::vector<absl::string_view> keys = {"parameters", "weight_decay", "lr_scale"};
  const std::string nearest = Nearest(node.key, keys);
  YamlNode named;
  named.kind = YamlNode::Kind::kScalar;
  named.text = node.key;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown key ", Quoted(named),
                   nearest.empty() ? absl::StrCat("; keys are ", absl::StrJoin(keys, ", "))
                                   : absl::StrCat("; did you mean '", nearest, "'?")));
}

absl::Status ReadSetting(const YamlNode& node, v1::ParameterGroup& group) {
  absl::Status read;
  if (node.key == "parameters") {
    read = ReadText(node, *group.mutable_parameters());
  } else if (node.key == "weight_decay") {
    read = Real(node, group, &v1::ParameterGroup::set_weight_decay);
  } else if (node.key == "lr_scale") {
    read = Real(node, group, &v1::ParameterGroup::set_lr_scale);
  } else {
    return UnknownKey(node);
  }
  return read.ok() ? read
                   : absl::InvalidArgumentError(absl::StrCat(node.key, ": ", read.message()));
}

absl::Status ReadGroup(const YamlNode& node, v1::ParameterGroup& group) {
  if (node.kind != YamlNode::Kind::kMapping) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(node), " must be a mapping, as in ", kExample));
  }
  for (const YamlNode& child : node.children) SHERD_RETURN_IF_ERROR(ReadSetting(child, group));
  if (group.parameters().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("must name parameters by a pattern, as in ", kExample));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadParameterGroups(const YamlNode& node,
                                 google::protobuf::RepeatedPtrField<v1::ParameterGroup>& groups) {
  if (node.kind != YamlNode::Kind::kSequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(node), " must be a list, as in ", kExample));
  }
  groups.Clear();
  for (size_t i = 0; i < node.children.size(); ++i) {
    const YamlNode& child = node.children[i];
    if (absl::Status read = ReadGroup(child, *groups.Add()); !read.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("entry ", i, " in line ", child.line, ": ", read.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace sherd
