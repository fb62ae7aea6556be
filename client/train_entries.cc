#include "client/train_entries.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/yaml_values.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

constexpr absl::string_view kForm = "{path: corpus.txt, weight: 2.5}";

struct Entry {
  std::string path;
  std::optional<double> weight;
};

absl::Status ReadWeighted(const YamlNode& node, Entry& entry) {
  bool has_path = false;
  for (const YamlNode& child : node.children) {
    if (child.key == "path") {
      SHERD_RETURN_IF_ERROR(ReadText(child, entry.path));
      has_path = true;
    } else if (child.key == "weight") {
      SHERD_RETURN_IF_ERROR(ReadReal(child, entry.weight.emplace()));
    } else {
      const std::string nearest = Nearest(child.key, {"path", "weight"});
      return absl::InvalidArgumentError(
          absl::StrCat("an entry has the unknown key '", child.key, "'",
                       nearest.empty() ? absl::StrCat("; write it as ", kForm)
                                       : absl::StrCat("; did you mean '", nearest, "'?")));
    }
  }
  if (has_path) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("an entry has no path; write it as ", kForm));
}

}  // namespace

absl::Status ReadTrainEntries(const YamlNode& node, v1::DataSpec& data) {
  if (node.kind != YamlNode::Kind::kSequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(node), " must be a list, as in [corpus.txt] or [", kForm, "]"));
  }
  std::vector<Entry> entries;
  size_t weighted = 0;
  for (const YamlNode& child : node.children) {
    Entry& entry = entries.emplace_back();
    SHERD_RETURN_IF_ERROR(child.kind == YamlNode::Kind::kMapping ? ReadWeighted(child, entry)
                                                                 : ReadText(child, entry.path));
    weighted += entry.weight.has_value() ? 1 : 0;
  }
  data.clear_train();
  data.clear_train_weights();
  for (Entry& entry : entries) {
    if (weighted > 0 && !entry.weight.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", entry.path, "' has no weight, but other entries have; give every entry one, as in ",
          kForm, ", or none"));
    }
    data.add_train(std::move(entry.path));
    if (weighted > 0) data.add_train_weights(*entry.weight);
  }
  return absl::OkStatus();
}

}  // namespace sherd
