#include "worker/checkpoint/check_resumable.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "plan/job_spec.h"
#include "plan/model_shape.h"
#include "worker/checkpoint/model_json.h"
#include "worker/checkpoint/training_keys.h"

namespace sherd {
namespace {

using Json = nlohmann::json;
using Sentences = std::vector<std::string>;

template <typename Value>
void Compare(absl::string_view key, const Value& was, const Value& is, Sentences& different) {
  if (was != is) different.push_back(absl::StrCat(key, " was ", was, " and is ", is));
}

void CompareModels(const ModelShape& was, const ModelShape& is, Sentences& different) {
  const Json flat_was = ModelJson(was).flatten();
  const Json flat_is = ModelJson(is).flatten();
  if (was.arch != is.arch) {
    return Compare("model.arch", flat_was["/arch"].dump(), flat_is["/arch"].dump(), different);
  }
  for (const auto& [path, value] : flat_was.items()) {
    const Json& now = flat_is[path];
    if (value == now) continue;
    // The rotary embedding's keys go by other names in a job file.
    const bool theta = path == "/rotary/theta";
    const std::string name = theta ? "rope_theta"
                             : path.rfind("/rotary/", 0) == 0
                                 ? absl::StrCat("rope_scaling.", path.substr(8))
                                 : path.substr(1);
    Compare(absl::StrCat("model.", name), value.dump(), now.dump(), different);
  }
}

std::string WeightsText(absl::Span<const double> weights) {
  return weights.empty() ? "none" : absl::StrJoin(weights, ", ");
}

void CompareData(const TrainingInfo& was, const v1::DataSpec& is, Sentences& different) {
  Compare("data.validation_split", was.validation_split, is.validation_split(), different);
  if (!absl::c_equal(was.train_weights, is.train_weights())) {
    Compare("the weighting of data.train", WeightsText(was.train_weights),
            WeightsText(is.train_weights()), different);
  }
}

// "[*.bias (weight_decay 0, lr_scale 0.5)]"
std::string TextOfGroups(const v1::TrainSpec& train) {
  const auto text_of = [](std::string* out, const v1::ParameterGroup& group) {
    Sentences settings;
    if (group.has_weight_decay()) {
      settings.push_back(absl::StrCat("weight_decay ", group.weight_decay()));
    }
    if (group.has_lr_scale()) settings.push_back(absl::StrCat("lr_scale ", group.lr_scale()));
    absl::StrAppend(out, group.parameters(), " (", absl::StrJoin(settings, ", "), ")");
  };
  return absl::StrCat("[", absl::StrJoin(train.optimizer().groups(), ", ", text_of), "]");
}

std::string TextOfFrozen(const v1::TrainSpec& train) {
  return absl::StrCat("[", absl::StrJoin(train.freeze(), ", "), "]");
}

}  // namespace

absl::Status CheckResumable(const CheckpointInfo& info, const v1::JobSpec& spec,
                            int64_t corpus_tokens) {
  if (!info.training) {
    return absl::FailedPreconditionError(
        "the checkpoint holds weights alone, without the optimizer's state");
  }
  Sentences different;
  CompareModels(info.model, ShapeOf(spec.model()), different);
  Compare("data.tokenizer", info.tokenizer, spec.data().tokenizer(), different);
  for (const WholeKey& key : WholeKeys()) {
    if (!key.orders_samples) continue;
    Compare(key.name, key.get(info.training->train), key.get(spec.train()), different);
  }
  CompareData(*info.training, spec.data(), different);
  if (info.training->corpus_tokens != corpus_tokens) {
    different.push_back(absl::StrCat("data.train had ", info.training->corpus_tokens,
                                     " tokens and has ", corpus_tokens));
  }
  Sentences wrong;
  if (!different.empty()) {
    wrong.push_back(
        absl::StrCat("the checkpoint is of another job: ", absl::StrJoin(different, "; ")));
  }
  if (info.step > spec.train().steps()) {
    wrong.push_back(absl::StrCat("the checkpoint is of step ", info.step, " and train.steps is ",
                                 spec.train().steps(), "; train.steps must be above ", info.step));
  }
  if (wrong.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(wrong, "; "));
}

std::vector<std::string> ChangedSettings(const CheckpointInfo& info, const v1::JobSpec& spec) {
  Sentences changed;
  if (!info.training) return changed;
  const v1::TrainSpec& was = info.training->train;
  for (const WholeKey& key : WholeKeys()) {
    if (!key.orders_samples) Compare(key.name, key.get(was), key.get(spec.train()), changed);
  }
  for (const RealKey& key : RealKeys()) {
    Compare(key.name, key.get(was), key.get(spec.train()), changed);
  }
  Compare(kScheduleKindKey, NameOf(was.schedule().kind()), NameOf(spec.train().schedule().kind()),
          changed);
  Compare(kGroupsKey, TextOfGroups(was), TextOfGroups(spec.train()), changed);
  Compare(kFreezeKey, TextOfFrozen(was), TextOfFrozen(spec.train()), changed);
  return changed;
}

}  // namespace sherd
