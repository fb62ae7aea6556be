#include "plan/parameter_rules.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/model_shape.h"
#include "plan/name_patterns.h"
#include "plan/parameter_settings.h"
#include "plan/parameters.h"

namespace sherd {
namespace {

constexpr int kMaxPatterns = 100;
constexpr size_t kMaxPatternLength = 100;
constexpr size_t kNamesToTell = 3;

// All of them, and those that stand for the others: blocks differ in their number alone.
struct Names {
  std::vector<std::string> all;
  std::vector<std::string> examples;
};

Names NamesIn(const Inventory& inventory) {
  Names names;
  const size_t last_block = inventory.units.size() - 2;
  for (size_t index = 0; index < inventory.units.size(); ++index) {
    const bool example = index <= 1 || index >= last_block;
    for (const Parameter& parameter : inventory.units[index].parameters) {
      names.all.push_back(parameter.name);
      if (example) names.examples.push_back(parameter.name);
    }
  }
  return names;
}

// Whether it can be a pattern at all.
bool CheckText(const std::string& field, const std::string& pattern, SpecRules& rules) {
  const bool control = std::any_of(pattern.begin(), pattern.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (!pattern.empty() && pattern.size() <= kMaxPatternLength && !control) return true;
  rules.Add(field, absl::StrCat("must be a pattern of 1 to ", kMaxPatternLength,
                                " characters for names of parameters, as in '*.bias'"));
  return false;
}

void CheckPattern(const std::string& field, const std::string& pattern, const Names& names,
                  SpecRules& rules) {
  if (!CheckText(field, pattern, rules) || names.all.empty()) return;
  const auto matches = [&](const std::string& name) { return MatchesPattern(pattern, name); };
  if (std::any_of(names.all.begin(), names.all.end(), matches)) return;
  const std::vector<std::string> nearest = NearestToPattern(pattern, names.examples, kNamesToTell);
  rules.Add(field, absl::StrCat("'", pattern, "' matches no parameter of the model; the nearest ",
                                nearest.size() == 1 ? "name is " : "names are ",
                                absl::StrJoin(nearest, ", ")));
}

void CheckGroup(const std::string& field, const v1::ParameterGroup& group, const Names& names,
                SpecRules& rules) {
  CheckPattern(absl::StrCat(field, ".parameters"), group.parameters(), names, rules);
  if (group.has_weight_decay()) {
    rules.CheckReal(absl::StrCat(field, ".weight_decay"), group.weight_decay(),
                    group.weight_decay() >= 0, "0 or above, as in 0.1");
  }
  if (group.has_lr_scale()) {
    rules.CheckReal(
        absl::StrCat(field, ".lr_scale"), group.lr_scale(), group.lr_scale() > 0,
        "a number above 0, as in 0.5; what is not to be trained is named in train.freeze");
  }
}

bool CheckCount(const char* field, int count, SpecRules& rules) {
  if (count <= kMaxPatterns) return true;
  rules.Add(field,
            absl::StrCat("lists ", count, " patterns; at most ", kMaxPatterns, " are allowed"));
  return false;
}

}  // namespace

void CheckParameterRules(const v1::JobSpec& spec, bool model_is_right, SpecRules& rules) {
  const v1::TrainSpec& train = spec.train();
  const auto& groups = train.optimizer().groups();
  if (groups.empty() && train.freeze().empty()) return;
  Inventory inventory;
  Names names;
  // The sizes of a model that is described elsewhere may not be known yet.
  if (model_is_right && spec.model().layers() > 0) {
    inventory = BuildInventory(ShapeOf(spec.model()));
    names = NamesIn(inventory);
  }
  if (CheckCount("train.optimizer.groups", groups.size(), rules)) {
    for (int i = 0; i < groups.size(); ++i) {
      CheckGroup(absl::StrCat("train.optimizer.groups[", i, "]"), groups[i], names, rules);
    }
  }
  if (!CheckCount("train.freeze", train.freeze_size(), rules)) return;
  for (int i = 0; i < train.freeze_size(); ++i) {
    CheckPattern(absl::StrCat("train.freeze[", i, "]"), train.freeze(i), names, rules);
  }
  if (names.all.empty()) return;
  ApplySettings(train, inventory);
  if (inventory.first_trained < static_cast<int>(inventory.units.size())) return;
  rules.Add("train.freeze",
            absl::StrCat("freezes every parameter, which leaves nothing to train; leave out ",
                         names.all.back(), ", for example"));
}

}  // namespace sherd
