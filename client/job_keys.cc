#include "client/job_keys.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/parameter_groups.h"
#include "client/train_entries.h"
#include "client/yaml_values.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

using Node = YamlNode;
using Spec = v1::JobSpec;

template <typename Message>
absl::Status Count(const Node& node, Message& message, void (Message::*set)(int64_t)) {
  int64_t value = 0;
  SHERD_RETURN_IF_ERROR(ReadWhole(node, value));
  (message.*set)(value);
  return absl::OkStatus();
}

// A count of which 0 would mean "not given" on the wire.
template <typename Message>
absl::Status Size(const Node& node, Message& message, void (Message::*set)(int64_t)) {
  int64_t value = 0;
  SHERD_RETURN_IF_ERROR(ReadWhole(node, value));
  if (value == 0) {
    return absl::InvalidArgumentError("0 is out of range; the nearest valid value is 1");
  }
  (message.*set)(value);
  return absl::OkStatus();
}

template <typename Message>
absl::Status Real(const Node& node, Message& message, void (Message::*set)(double)) {
  double value = 0;
  SHERD_RETURN_IF_ERROR(ReadReal(node, value));
  (message.*set)(value);
  return absl::OkStatus();
}

// A number of which 0 would mean "not given" on the wire.
template <typename Message>
absl::Status NonZeroReal(const Node& node, Message& message, void (Message::*set)(double)) {
  double value = 0;
  SHERD_RETURN_IF_ERROR(ReadReal(node, value));
  if (value == 0) {
    return absl::InvalidArgumentError("0 is not valid; it must be a number above 0");
  }
  (message.*set)(value);
  return absl::OkStatus();
}

template <typename Message>
absl::Status Flag(const Node& node, Message& message, void (Message::*set)(bool)) {
  bool value = false;
  SHERD_RETURN_IF_ERROR(ReadFlag(node, value));
  (message.*set)(value);
  return absl::OkStatus();
}

// A name of an enumeration whose value 0 has no name.
template <typename Message, typename Enum>
absl::Status Name(const Node& node, Message& message, void (Message::*set)(Enum),
                  Enum (*from_name)(absl::string_view),
                  const std::vector<absl::string_view>& names) {
  std::string name;
  SHERD_RETURN_IF_ERROR(ReadText(node, name));
  const Enum value = from_name(name);
  if (value != Enum{}) {
    (message.*set)(value);
    return absl::OkStatus();
  }
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(node), " is not one of ", absl::StrJoin(names, ", "),
                   nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
}

// FSDP calls the strategies otherwise.
absl::Status StrategyName(const Node& node, v1::ParallelSpec& parallel) {
  constexpr std::pair<absl::string_view, absl::string_view> kFsdpNames[] = {
      {"no_shard", "ddp"},
      {"shard_grad_op", "zero2"},
      {"full_shard", "zero3"},
      {"hybrid_shard", "hybrid"}};
  std::string name;
  SHERD_RETURN_IF_ERROR(ReadText(node, name));
  for (const auto& [fsdp, ours] : kFsdpNames) {
    if (absl::AsciiStrToLower(name) != fsdp) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(node), " is FSDP's name of what is called '", ours, "' here"));
  }
  const std::string lower = absl::AsciiStrToLower(name);
  if (lower == "zero") {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(node), " has stages: write zero1, zero2 or zero3"));
  }
  if (lower == "tp" || lower == "tensor" || lower == "tensor_parallel") {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(node), " goes with a strategy: give its degree as parallel.tensor"));
  }
  return Name(node, parallel, &v1::ParallelSpec::set_strategy, StrategyFromName, StrategyNames());
}

absl::Status NonEmpty(const Node& node, std::string& value) {
  SHERD_RETURN_IF_ERROR(ReadText(node, value));
  if (value.empty()) return absl::InvalidArgumentError("must not be empty");
  return absl::OkStatus();
}

absl::Status Paths(const Node& node, google::protobuf::RepeatedPtrField<std::string>& paths) {
  std::vector<std::string> values;
  SHERD_RETURN_IF_ERROR(ReadTexts(node, values));
  paths.Assign(values.begin(), values.end());
  return absl::OkStatus();
}

absl::Status Format(const Node& node, Spec& s) {
  return Name(node, *s.mutable_data(), &v1::DataSpec::set_format, DataFormatFromName,
              DataFormatNames());
}

absl::Status Seed(const Node& node, Spec& s) {
  int64_t value = 0;
  SHERD_RETURN_IF_ERROR(ReadWhole(node, value));
  if (value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(value, " is out of range; the nearest valid value is 0"));
  }
  s.mutable_train()->set_seed(static_cast<uint64_t>(value));
  return absl::OkStatus();
}

absl::Status Betas(const Node& node, Spec& s) {
  std::vector<double> betas;
  SHERD_RETURN_IF_ERROR(ReadReals(node, betas));
  if (betas.size() != 2) {
    return absl::InvalidArgumentError("must be a list of two numbers, as in [0.9, 0.95]");
  }
  s.mutable_train()->mutable_optimizer()->set_beta1(betas[0]);
  s.mutable_train()->mutable_optimizer()->set_beta2(betas[1]);
  return absl::OkStatus();
}

absl::Status Frozen(const Node& node, Spec& s) {
  std::vector<std::string> patterns;
  if (node.kind != Node::Kind::kSequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(node), " must be a list of patterns, as in ['wte.*', 'h.0.*']"));
  }
  SHERD_RETURN_IF_ERROR(ReadTexts(node, patterns));
  s.mutable_train()->mutable_freeze()->Assign(patterns.begin(), patterns.end());
  return absl::OkStatus();
}

absl::Status Priority(const Node& node, Spec& s) {
  int64_t value = 0;
  SHERD_RETURN_IF_ERROR(ReadWhole(node, value));
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(value, " is out of range; priorities go from -2147483648 to 2147483647"));
  }
  s.set_priority(static_cast<int32_t>(value));
  return absl::OkStatus();
}

v1::ModelSpec& Model(Spec& s) { return *s.mutable_model(); }
v1::RopeScaling& Rope(Spec& s) { return *s.mutable_model()->mutable_rope_scaling(); }
v1::TrainSpec& Train(Spec& s) { return *s.mutable_train(); }
v1::OptimizerSpec& Optimizer(Spec& s) { return *s.mutable_train()->mutable_optimizer(); }
v1::ScheduleSpec& Schedule(Spec& s) { return *s.mutable_train()->mutable_schedule(); }
v1::ParallelSpec& Parallel(Spec& s) { return *s.mutable_parallel(); }
v1::ElasticSpec& Elastic(Spec& s) { return *s.mutable_elastic(); }
v1::CheckpointSpec& Checkpoint(Spec& s) { return *s.mutable_checkpoint(); }

constexpr JobKey kJobKeys[] = {
    {"name", [](const Node& n, Spec& s) { return NonEmpty(n, *s.mutable_name()); }},
    {"priority", Priority},

    {"model.preset",
     [](const Node& n, Spec& s) { return NonEmpty(n, *Model(s).mutable_preset()); }},
    {"model.from", [](const Node& n, Spec& s) { return NonEmpty(n, *Model(s).mutable_from()); }},
    {"model.arch",
     [](const Node& n, Spec& s) {
       return Name(n, Model(s), &v1::ModelSpec::set_arch, ArchitectureFromName,
                   ArchitectureNames());
     }},
    {"model.layers",
     [](const Node& n, Spec& s) { return Size(n, Model(s), &v1::ModelSpec::set_layers); }},
    {"model.hidden",
     [](const Node& n, Spec& s) { return Size(n, Model(s), &v1::ModelSpec::set_hidden); }},
    {"model.heads",
     [](const Node& n, Spec& s) { return Size(n, Model(s), &v1::ModelSpec::set_heads); }},
    {"model.kv_heads",
     [](const Node& n, Spec& s) { return Count(n, Model(s), &v1::ModelSpec::set_kv_heads); }},
    {"model.ffn",
     [](const Node& n, Spec& s) { return Count(n, Model(s), &v1::ModelSpec::set_ffn); }},
    {"model.vocab",
     [](const Node& n, Spec& s) { return Size(n, Model(s), &v1::ModelSpec::set_vocab); }},
    {"model.context",
     [](const Node& n, Spec& s) { return Size(n, Model(s), &v1::ModelSpec::set_context); }},
    {"model.tie_embeddings",
     [](const Node& n, Spec& s) { return Flag(n, Model(s), &v1::ModelSpec::set_tie_embeddings); }},
    {"model.norm_eps",
     [](const Node& n, Spec& s) { return NonZeroReal(n, Model(s), &v1::ModelSpec::set_norm_eps); }},
    {"model.rope_theta",
     [](const Node& n, Spec& s) {
       return NonZeroReal(n, Model(s), &v1::ModelSpec::set_rope_theta);
     }},
    {"model.rope_scaling.factor",
     [](const Node& n, Spec& s) { return NonZeroReal(n, Rope(s), &v1::RopeScaling::set_factor); }},
    {"model.rope_scaling.low_freq_factor",
     [](const Node& n, Spec& s) {
       return NonZeroReal(n, Rope(s), &v1::RopeScaling::set_low_freq_factor);
     }},
    {"model.rope_scaling.high_freq_factor",
     [](const Node& n, Spec& s) {
       return NonZeroReal(n, Rope(s), &v1::RopeScaling::set_high_freq_factor);
     }},
    {"model.rope_scaling.original_context",
     [](const Node& n, Spec& s) {
       return Size(n, Rope(s), &v1::RopeScaling::set_original_context);
     }},

    {"data.train", [](const Node& n, Spec& s) { return ReadTrainEntries(n, *s.mutable_data()); }},
    {"data.eval",
     [](const Node& n, Spec& s) { return Paths(n, *s.mutable_data()->mutable_eval()); }},
    {"data.format", Format},
    {"data.tokenizer",
     [](const Node& n, Spec& s) { return NonEmpty(n, *s.mutable_data()->mutable_tokenizer()); }},
    {"data.validation_split",
     [](const Node& n, Spec& s) {
       return Real(n, *s.mutable_data(), &v1::DataSpec::set_validation_split);
     }},

    {"train.steps",
     [](const Node& n, Spec& s) { return Size(n, Train(s), &v1::TrainSpec::set_steps); }},
    {"train.global_batch",
     [](const Node& n, Spec& s) { return Size(n, Train(s), &v1::TrainSpec::set_global_batch); }},
    {"train.micro_batch",
     [](const Node& n, Spec& s) { return Size(n, Train(s), &v1::TrainSpec::set_micro_batch); }},
    {"train.seq_len",
     [](const Node& n, Spec& s) { return Count(n, Train(s), &v1::TrainSpec::set_seq_len); }},
    {"train.seed", Seed},
    {"train.optimizer.lr",
     [](const Node& n, Spec& s) {
       return NonZeroReal(n, Optimizer(s), &v1::OptimizerSpec::set_lr);
     }},
    {"train.optimizer.betas", Betas},
    {"train.optimizer.eps",
     [](const Node& n, Spec& s) {
       return NonZeroReal(n, Optimizer(s), &v1::OptimizerSpec::set_eps);
     }},
    {"train.optimizer.weight_decay",
     [](const Node& n, Spec& s) {
       return Real(n, Optimizer(s), &v1::OptimizerSpec::set_weight_decay);
     }},
    {"train.optimizer.groups",
     [](const Node& n, Spec& s) { return ReadParameterGroups(n, *Optimizer(s).mutable_groups()); }},
    {"train.schedule.kind",
     [](const Node& n, Spec& s) {
       return Name(n, Schedule(s), &v1::ScheduleSpec::set_kind, ScheduleKindFromName,
                   ScheduleKindNames());
     }},
    {"train.schedule.warmup",
     [](const Node& n, Spec& s) { return Count(n, Schedule(s), &v1::ScheduleSpec::set_warmup); }},
    {"train.schedule.min_lr",
     [](const Node& n, Spec& s) { return Real(n, Schedule(s), &v1::ScheduleSpec::set_min_lr); }},
    {"train.schedule.decay",
     [](const Node& n, Spec& s) { return Size(n, Schedule(s), &v1::ScheduleSpec::set_decay); }},
    {"train.grad_clip",
     [](const Node& n, Spec& s) { return Real(n, Train(s), &v1::TrainSpec::set_grad_clip); }},
    {"train.eval_every",
     [](const Node& n, Spec& s) { return Count(n, Train(s), &v1::TrainSpec::set_eval_every); }},
    {"train.z_loss",
     [](const Node& n, Spec& s) { return Real(n, Train(s), &v1::TrainSpec::set_z_loss); }},
    {"train.label_smoothing",
     [](const Node& n, Spec& s) { return Real(n, Train(s), &v1::TrainSpec::set_label_smoothing); }},
    {"train.freeze", Frozen},

    {"parallel.strategy", [](const Node& n, Spec& s) { return StrategyName(n, Parallel(s)); }},
    {"parallel.tensor",
     [](const Node& n, Spec& s) { return Size(n, Parallel(s), &v1::ParallelSpec::set_tensor); }},
    {"parallel.shard_group",
     [](const Node& n, Spec& s) {
       return Count(n, Parallel(s), &v1::ParallelSpec::set_shard_group);
     }},
    {"parallel.zero1_gradients",
     [](const Node& n, Spec& s) {
       return Name(n, Parallel(s), &v1::ParallelSpec::set_zero1_gradients,
                   GradientReductionFromName, GradientReductionNames());
     }},
    {"parallel.reshard_after_forward",
     [](const Node& n, Spec& s) {
       return Flag(n, Parallel(s), &v1::ParallelSpec::set_reshard_after_forward);
     }},
    {"parallel.prefetch",
     [](const Node& n, Spec& s) { return Count(n, Parallel(s), &v1::ParallelSpec::set_prefetch); }},
    {"parallel.bucket_mb",
     [](const Node& n, Spec& s) {
       return Count(n, Parallel(s), &v1::ParallelSpec::set_bucket_mb);
     }},
    {"parallel.sequence_parallel",
     [](const Node& n, Spec& s) {
       return Flag(n, Parallel(s), &v1::ParallelSpec::set_sequence_parallel);
     }},
    {"parallel.recompute",
     [](const Node& n, Spec& s) {
       return Name(n, Parallel(s), &v1::ParallelSpec::set_recompute, RecomputeFromName,
                   RecomputeNames());
     }},
    {"parallel.offload",
     [](const Node& n, Spec& s) {
       return Name(n, Parallel(s), &v1::ParallelSpec::set_offload, OffloadFromName, OffloadNames());
     }},

    {"precision.compute",
     [](const Node& n, Spec& s) {
       return Name(n, *s.mutable_precision(), &v1::PrecisionSpec::set_compute, DataTypeFromName,
                   DataTypeNames());
     }},
    {"precision.grad",
     [](const Node& n, Spec& s) {
       return Name(n, *s.mutable_precision(), &v1::PrecisionSpec::set_grad, DataTypeFromName,
                   DataTypeNames());
     }},
    {"precision.reproducible",
     [](const Node& n, Spec& s) {
       return Flag(n, *s.mutable_precision(), &v1::PrecisionSpec::set_reproducible);
     }},

    {"elastic.min_workers",
     [](const Node& n, Spec& s) { return Size(n, Elastic(s), &v1::ElasticSpec::set_min_workers); }},
    {"elastic.max_workers",
     [](const Node& n, Spec& s) {
       return Count(n, Elastic(s), &v1::ElasticSpec::set_max_workers);
     }},
    {"elastic.replicas",
     [](const Node& n, Spec& s) { return Count(n, Elastic(s), &v1::ElasticSpec::set_replicas); }},
    {"elastic.failure_detection",
     [](const Node& n, Spec& s) {
       int64_t milliseconds = 0;
       SHERD_RETURN_IF_ERROR(ReadDurationMs(n, milliseconds));
       Elastic(s).set_failure_detection_ms(milliseconds);
       return absl::OkStatus();
     }},
    {"elastic.on_nan",
     [](const Node& n, Spec& s) {
       return Name(n, Elastic(s), &v1::ElasticSpec::set_on_nan, OnNanFromName, OnNanNames());
     }},
    {"elastic.max_rollbacks",
     [](const Node& n,
        Spec& s) { return Count(n, Elastic(s), &v1::ElasticSpec::set_max_rollbacks); }},

    {"checkpoint.dir",
     [](const Node& n, Spec& s) { return NonEmpty(n, *Checkpoint(s).mutable_dir()); }},
    {"checkpoint.every",
     [](const Node& n,
        Spec& s) { return Count(n, Checkpoint(s), &v1::CheckpointSpec::set_every); }},
    {"checkpoint.keep",
     [](const Node& n, Spec& s) { return Count(n, Checkpoint(s), &v1::CheckpointSpec::set_keep); }},
    {"checkpoint.resume",
     [](const Node& n, Spec& s) { return NonEmpty(n, *Checkpoint(s).mutable_resume()); }},
};

}  // namespace

absl::Span<const JobKey> JobKeys() { return kJobKeys; }

}  // namespace sherd
