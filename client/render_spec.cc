#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/render_json.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

template <typename Enum>
std::string Name(Enum value) {
  return std::string(NameOf(value));
}

Json ModelJson(const v1::ModelSpec& model) {
  Json json = Json::object();
  if (!model.preset().empty()) json["preset"] = model.preset();
  if (!model.from().empty()) json["from"] = model.from();
  json["arch"] = Name(model.arch());
  json["layers"] = model.layers();
  json["hidden"] = model.hidden();
  json["heads"] = model.heads();
  json["kv_heads"] = model.kv_heads();
  json["ffn"] = model.ffn();
  json["vocab"] = model.vocab();
  json["context"] = model.context();
  json["tie_embeddings"] = model.tie_embeddings();
  if (model.arch() != v1::ARCHITECTURE_LLAMA) return json;
  json["norm_eps"] = model.norm_eps();
  json["rope_theta"] = model.rope_theta();
  if (!model.has_rope_scaling()) return json;
  const v1::RopeScaling& scaling = model.rope_scaling();
  json["rope_scaling"] = {{"factor", scaling.factor()},
                          {"low_freq_factor", scaling.low_freq_factor()},
                          {"high_freq_factor", scaling.high_freq_factor()},
                          {"original_context", scaling.original_context()}};
  return json;
}

Json DataJson(const v1::DataSpec& data) {
  Json train = Json::array();
  const bool mixed = data.train_weights_size() == data.train_size();
  for (int i = 0; i < data.train_size(); ++i) {
    train.push_back(mixed ? Json{{"path", data.train(i)}, {"weight", data.train_weights(i)}}
                          : Json(data.train(i)));
  }
  Json json = {{"train", std::move(train)},
               {"eval", std::vector<std::string>(data.eval().begin(), data.eval().end())},
               {"format", Name(data.format())},
               {"tokenizer", data.tokenizer()}};
  if (data.validation_split() > 0) json["validation_split"] = data.validation_split();
  return json;
}

Json GroupsJson(const v1::OptimizerSpec& optimizer) {
  Json json = Json::array();
  for (const v1::ParameterGroup& group : optimizer.groups()) {
    Json settings = {{"parameters", group.parameters()}};
    if (group.has_weight_decay()) settings["weight_decay"] = group.weight_decay();
    if (group.has_lr_scale()) settings["lr_scale"] = group.lr_scale();
    json.push_back(settings);
  }
  return json;
}

Json ScheduleJson(const v1::ScheduleSpec& schedule) {
  Json json = {{"kind", Name(schedule.kind())},
               {"warmup", schedule.warmup()},
               {"min_lr", schedule.min_lr()}};
  if (schedule.decay() > 0) json["decay"] = schedule.decay();
  return json;
}

Json TrainJson(const v1::TrainSpec& train) {
  const v1::OptimizerSpec& optimizer = train.optimizer();
  return {{"steps", train.steps()},
          {"global_batch", train.global_batch()},
          {"micro_batch", train.micro_batch()},
          {"seq_len", train.seq_len()},
          {"seed", train.seed()},
          {"optimizer",
           {{"lr", optimizer.lr()},
            {"betas", Json::array({optimizer.beta1(), optimizer.beta2()})},
            {"eps", optimizer.eps()},
            {"weight_decay", optimizer.weight_decay()},
            {"groups", GroupsJson(optimizer)}}},
          {"schedule", ScheduleJson(train.schedule())},
          {"grad_clip", train.grad_clip()},
          {"eval_every", train.eval_every()},
          {"z_loss", train.z_loss()},
          {"label_smoothing", train.label_smoothing()},
          {"freeze", std::vector<std::string>(train.freeze().begin(), train.freeze().end())}};
}

// Without what strategy auto leaves open.
Json ParallelJson(const v1::ParallelSpec& parallel) {
  Json json = {{"strategy", Name(parallel.strategy())}};
  if (parallel.tensor() > 0) json["tensor"] = parallel.tensor();
  if (parallel.has_reshard_after_forward()) {
    json["reshard_after_forward"] = parallel.reshard_after_forward();
  }
  if (parallel.zero1_gradients() != v1::GRADIENT_REDUCTION_UNSPECIFIED) {
    json["zero1_gradients"] = Name(parallel.zero1_gradients());
  }
  json["prefetch"] = parallel.prefetch();
  json["bucket_mb"] = parallel.bucket_mb();
  json["shard_group"] = parallel.shard_group();
  json["sequence_parallel"] = parallel.sequence_parallel();
  if (parallel.recompute() != v1::RECOMPUTE_UNSPECIFIED) {
    json["recompute"] = Name(parallel.recompute());
  }
  json["offload"] = Name(parallel.offload());
  return json;
}

Json ElasticJson(const v1::ElasticSpec& elastic) {
  return {{"min_workers", elastic.min_workers()},
          {"max_workers", elastic.max_workers()},
          {"replicas", elastic.replicas()},
          {"failure_detection", absl::StrCat(elastic.failure_detection_ms(), "ms")},
          {"on_nan", Name(elastic.on_nan())},
          {"max_rollbacks", elastic.max_rollbacks()}};
}

Json CheckpointJson(const v1::CheckpointSpec& checkpoint) {
  Json json = Json::object();
  if (!checkpoint.dir().empty()) json["dir"] = checkpoint.dir();
  json["every"] = checkpoint.every();
  json["keep"] = checkpoint.keep();
  json["resume"] = checkpoint.resume();
  return json;
}

}  // namespace

Json SpecJson(const v1::JobSpec& spec) {
  Json json = {{"name", spec.name()},
               {"model", ModelJson(spec.model())},
               {"data", DataJson(spec.data())},
               {"train", TrainJson(spec.train())},
               {"parallel", ParallelJson(spec.parallel())},
               {"precision",
                {{"compute", Name(spec.precision().compute())},
                 {"grad", Name(spec.precision().grad())},
                 {"reproducible", IsReproducible(spec.precision())}}},
               {"elastic", ElasticJson(spec.elastic())},
               {"checkpoint", CheckpointJson(spec.checkpoint())}};
  // Left open.
  if (spec.train().micro_batch() == 0) json["train"].erase("micro_batch");
  json["priority"] = spec.priority();
  return json;
}

}  // namespace sherd
