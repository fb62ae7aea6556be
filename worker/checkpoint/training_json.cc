#include "worker/checkpoint/training_json.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"
#include "worker/checkpoint/json_members.h"
#include "worker/checkpoint/training_keys.h"

namespace sherd {
namespace {

using Json = nlohmann::json;

Json GroupJson(const v1::ParameterGroup& group) {
  Json json = {{"parameters", group.parameters()}};
  if (group.has_weight_decay()) json["weight_decay"] = group.weight_decay();
  if (group.has_lr_scale()) json["lr_scale"] = group.lr_scale();
  return json;
}

Json SettingsJson(const v1::TrainSpec& train) {
  Json json = Json::object();
  for (const WholeKey& key : WholeKeys()) json[key.name] = key.get(train);
  for (const RealKey& key : RealKeys()) json[key.name] = key.get(train);
  json[kScheduleKindKey] = std::string(NameOf(train.schedule().kind()));
  for (const v1::ParameterGroup& group : train.optimizer().groups()) {
    json[kGroupsKey].push_back(GroupJson(group));
  }
  for (const std::string& pattern : train.freeze()) json[kFreezeKey].push_back(pattern);
  return json;
}

absl::Status ParseGroups(const Json& json, v1::OptimizerSpec& optimizer) {
  for (const Json& entry : json) {
    JsonMembers members(entry);
    v1::ParameterGroup& group = *optimizer.add_groups();
    group.set_parameters(members.String("parameters"));
    if (members.Has("weight_decay")) group.set_weight_decay(members.Real("weight_decay"));
    if (members.Has("lr_scale")) group.set_lr_scale(members.Real("lr_scale"));
    SHERD_RETURN_IF_ERROR(members.status());
  }
  return absl::OkStatus();
}

absl::Status ParsePatterns(const Json& json, v1::TrainSpec& train) {
  for (const Json& entry : json) {
    if (!entry.is_string()) {
      return WrongManifest(absl::StrCat("lacks a valid \"", kFreezeKey, "\""));
    }
    train.add_freeze(entry.get<std::string>());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::TrainSpec> ParseSettings(const Json& json) {
  JsonMembers members(json);
  v1::TrainSpec train;
  for (const WholeKey& key : WholeKeys()) {
    if (key.added_later && !members.Has(key.name)) continue;
    key.set(train, members.Unsigned(key.name));
  }
  for (const RealKey& key : RealKeys()) {
    if (key.added_later && !members.Has(key.name)) continue;
    key.set(train, members.Real(key.name));
  }
  if (members.Has(kGroupsKey)) {
    SHERD_RETURN_IF_ERROR(ParseGroups(members.Array(kGroupsKey), *train.mutable_optimizer()));
  }
  if (members.Has(kFreezeKey)) {
    SHERD_RETURN_IF_ERROR(ParsePatterns(members.Array(kFreezeKey), train));
  }
  const std::string kind = members.String(kScheduleKindKey);
  SHERD_RETURN_IF_ERROR(members.status());
  train.mutable_schedule()->set_kind(ScheduleKindFromName(kind));
  if (train.schedule().kind() == v1::SCHEDULE_KIND_UNSPECIFIED) {
    return WrongManifest(absl::StrCat("names the unknown schedule \"", kind, "\""));
  }
  return train;
}

}  // namespace

Json TrainingJson(const TrainingInfo& training) {
  Json json = {{"lineage", training.lineage},
               {"settings", SettingsJson(training.train)},
               {"corpus_tokens", training.corpus_tokens},
               {"tokens", training.tokens},
               {"skipped_windows", training.skipped_windows}};
  if (!training.train_weights.empty()) json["data.train.weights"] = training.train_weights;
  if (training.validation_split > 0) json["data.validation_split"] = training.validation_split;
  // JSON has no other numbers.
  if (std::isfinite(training.loss)) json["loss"] = training.loss;
  return json;
}

absl::StatusOr<TrainingInfo> ParseTraining(const Json& json) {
  JsonMembers members(json);
  TrainingInfo training;
  training.lineage = members.String("lineage");
  training.corpus_tokens = members.Size("corpus_tokens");
  training.tokens = members.Size("tokens");
  training.skipped_windows = members.Size("skipped_windows");
  training.loss =
      members.Has("loss") ? members.Real("loss") : std::numeric_limits<double>::quiet_NaN();
  if (members.Has("data.validation_split")) {
    training.validation_split = members.Real("data.validation_split");
  }
  if (members.Has("data.train.weights")) {
    for (const Json& weight : members.Array("data.train.weights")) {
      if (!weight.is_number()) return WrongManifest("has a weight of data.train that is no number");
      training.train_weights.push_back(weight.get<double>());
    }
  }
  const Json& settings = members.Object("settings");
  SHERD_RETURN_IF_ERROR(members.status());
  SHERD_ASSIGN_OR_RETURN(training.train, ParseSettings(settings));
  return training;
}

}  // namespace sherd
