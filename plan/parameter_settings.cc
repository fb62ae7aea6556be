#include "plan/parameter_settings.h"

#include <algorithm>

#include "plan/name_patterns.h"

namespace sherd {
namespace {

ParameterSettings SettingsOf(const v1::TrainSpec& train, const Parameter& parameter) {
  const v1::OptimizerSpec& optimizer = train.optimizer();
  ParameterSettings settings;
  settings.frozen = std::any_of(
      train.freeze().begin(), train.freeze().end(),
      [&](const std::string& pattern) { return MatchesPattern(pattern, parameter.name); });
  settings.weight_decay = parameter.decays ? optimizer.weight_decay() : 0.0;
  const auto& groups = optimizer.groups();
  const auto last = std::find_if(groups.rbegin(), groups.rend(), [&](const auto& group) {
    return MatchesPattern(group.parameters(), parameter.name);
  });
  if (last == groups.rend()) return settings;
  if (last->has_weight_decay()) settings.weight_decay = last->weight_decay();
  if (last->has_lr_scale()) settings.lr_scale = last->lr_scale();
  return settings;
}

}  // namespace

void ApplySettings(const v1::TrainSpec& train, Inventory& inventory) {
  for (Unit& unit : inventory.units) {
    for (Parameter& parameter : unit.parameters) {
      parameter.settings = SettingsOf(train, parameter);
    }
    unit.frozen = std::all_of(unit.parameters.begin(), unit.parameters.end(),
                              [](const Parameter& parameter) { return parameter.settings.frozen; });
  }
  const auto first = std::find_if(inventory.units.begin(), inventory.units.end(),
                                  [](const Unit& unit) { return !unit.frozen; });
  inventory.first_trained = static_cast<int>(first - inventory.units.begin());
}

}  // namespace sherd
