#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/data_rules.h"
#include "plan/job_spec.h"
#include "plan/model_rules.h"
#include "plan/parallel_rules.h"
#include "plan/parameter_rules.h"
#include "plan/spec_rules.h"

// Bounds together keep every byte count of one rank and step below 2^62: at most 4e12 parameters ×
// 16 bytes of state; × 3 × 4 bytes on the wire × 2^16 rounds; 2^24 tokens of a micro-batch ×
// activations of 1000 layers.
namespace sherd {
namespace {

constexpr int64_t kMaxGlobalBatch = int64_t{1} << 24;
constexpr int64_t kMaxMicroBatch = int64_t{1} << 16;
constexpr int64_t kMaxMicroBatchTokens = int64_t{1} << 24;
constexpr int64_t kMaxMicroBatches = int64_t{1} << 16;
// A smaller one is 0 in fp32, and 0 / 0 where there is no gradient.
constexpr double kMinEpsilon = 1e-30;
constexpr int64_t kMaxSteps = 1'000'000'000;
constexpr int64_t kMinDetectionMs = 200;
constexpr int64_t kMaxDetectionMs = 600'000;
constexpr int64_t kMaxReplicas = 16;
constexpr int64_t kMaxRollbacks = 1000;
constexpr size_t kMaxNameLength = 100;

void CheckName(const v1::JobSpec& spec, SpecRules& rules) {
  const std::string& name = spec.name();
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  if (name.empty()) {
    rules.Add("name", "must be given: letters, digits, '.', '_' and '-', as in 'my-first-job'");
  } else if (name.size() > kMaxNameLength) {
    rules.Add("name", absl::StrCat("has ", name.size(), " characters; at most ", kMaxNameLength,
                                   " are allowed"));
  } else if (!std::all_of(name.begin(), name.end(), allowed) || name == "." || name == "..") {
    std::string valid = name;
    std::replace_if(
        valid.begin(), valid.end(), [&](char c) { return !allowed(c); }, '-');
    if (valid == "." || valid == "..") valid = "job";
    rules.Add("name", absl::StrCat("may hold letters, digits, '.', '_' and '-' only; '", valid,
                                   "' would be right"));
  }
}

void CheckFrom(const v1::ModelSpec& model, SpecRules& rules) {
  if (model.from().size() <= kMaxPathLength && !HasControl(model.from())) return;
  rules.Add("model.from", absl::StrCat("must be the path of a folder of at most ", kMaxPathLength,
                                       " characters, none a control character"));
}

// `open`: a micro_batch that is left out is chosen when the job starts.
void CheckBatches(const v1::TrainSpec& train, int64_t context, bool open, SpecRules& rules) {
  const bool global =
      rules.CheckRange("train.global_batch", train.global_batch(), 1, kMaxGlobalBatch);
  // A default micro_batch is missing only because global_batch is wrong.
  const bool given = train.micro_batch() != 0 || (global && !open);
  const bool micro =
      given && rules.CheckRange("train.micro_batch", train.micro_batch(), 1, kMaxMicroBatch);
  if (global && micro && train.global_batch() % train.micro_batch() != 0) {
    rules.Add("train.global_batch",
              absl::StrCat("global_batch ", train.global_batch(),
                           " is not a multiple of micro_batch ", train.micro_batch(),
                           NearestText(NearestMultiples(train.micro_batch(), train.global_batch(),
                                                        kMaxGlobalBatch))));
  } else if (global && micro && train.global_batch() / train.micro_batch() > kMaxMicroBatches) {
    rules.Add("train.micro_batch",
              absl::StrCat("makes more than ", kMaxMicroBatches, " micro-batches a step; ",
                           (train.global_batch() + kMaxMicroBatches - 1) / kMaxMicroBatches,
                           " or more would be right"));
  }
  // Without a valid context the length says nothing.
  if (context < 1 || context > kMaxContext) return;
  if (!rules.CheckRange("train.seq_len", train.seq_len(), 1, context)) return;
  if (micro && train.micro_batch() * train.seq_len() > kMaxMicroBatchTokens) {
    rules.Add("train.micro_batch",
              absl::StrCat("micro_batch × seq_len is more than ", kMaxMicroBatchTokens,
                           " tokens; the nearest valid value is ",
                           kMaxMicroBatchTokens / train.seq_len()));
  }
}

void CheckOptimizer(const v1::TrainSpec& train, SpecRules& rules) {
  const v1::OptimizerSpec& optimizer = train.optimizer();
  const bool lr = rules.CheckReal("train.optimizer.lr", optimizer.lr(), optimizer.lr() > 0,
                                  "a number above 0, as in 3e-4");
  for (const double beta : {optimizer.beta1(), optimizer.beta2()}) {
    rules.CheckReal("train.optimizer.betas", beta, beta >= 0 && beta < 1,
                    "at least 0 and below 1, as in [0.9, 0.95]");
  }
  rules.CheckReal("train.optimizer.eps", optimizer.eps(), optimizer.eps() >= kMinEpsilon,
                  "at least 1e-30, as in 1e-8");
  rules.CheckReal("train.optimizer.weight_decay", optimizer.weight_decay(),
                  optimizer.weight_decay() >= 0, "0 or above, as in 0.1");
  rules.CheckReal("train.grad_clip", train.grad_clip(), train.grad_clip() >= 0,
                  "0 (no clipping) or above, as in 1.0");
  const double min_lr = train.schedule().min_lr();
  // A default min_lr is a share of lr and wrong only because lr is.
  if (lr) {
    rules.CheckReal("train.schedule.min_lr", min_lr, min_lr >= 0 && min_lr <= optimizer.lr(),
                    absl::StrCat("from 0 to lr, which is ", optimizer.lr()));
  }
}

void CheckDecay(const v1::TrainSpec& train, SpecRules& rules) {
  const v1::ScheduleSpec& schedule = train.schedule();
  constexpr absl::string_view kField = "train.schedule.decay";
  if (schedule.kind() != v1::SCHEDULE_KIND_WSD) {
    if (schedule.decay() == 0) return;
    rules.Add(kField,
              "is of the schedule 'wsd' alone; leave it out, or let train.schedule.kind be 'wsd'");
    return;
  }
  const int64_t most = train.steps() - schedule.warmup();
  if (most == 0) {
    rules.Add("train.schedule.warmup",
              absl::StrCat("leaves no step for the decay of the schedule 'wsd'; the nearest valid "
                           "value is ",
                           train.steps() - 1));
    return;
  }
  rules.CheckRange(kField, schedule.decay(), 1, most);
}

// What is trained for beside the cross-entropy.
void CheckObjective(const v1::TrainSpec& train, SpecRules& rules) {
  rules.CheckReal("train.z_loss", train.z_loss(), train.z_loss() >= 0 && train.z_loss() <= 1,
                  "from 0 (off) to 1, as in 1e-4");
  rules.CheckReal("train.label_smoothing", train.label_smoothing(),
                  train.label_smoothing() >= 0 && train.label_smoothing() < 1,
                  "at least 0 (off) and below 1, as in 0.1");
}

void CheckTrain(const v1::JobSpec& spec, SpecRules& rules) {
  const v1::TrainSpec& train = spec.train();
  const bool steps = rules.CheckGiven("train.steps", train.steps(), kMaxSteps);
  CheckBatches(train, spec.model().context(), spec.parallel().strategy() == v1::STRATEGY_AUTO,
               rules);
  CheckOptimizer(train, rules);
  if (NameOf(train.schedule().kind()).empty()) {
    rules.Add("train.schedule.kind",
              absl::StrCat("must be one of ", absl::StrJoin(ScheduleKindNames(), ", ")));
  }
  if (steps) {
    const bool warmup =
        rules.CheckRange("train.schedule.warmup", train.schedule().warmup(), 0, train.steps());
    if (warmup) CheckDecay(train, rules);
  }
  CheckObjective(train, rules);
  rules.CheckRange("train.eval_every", train.eval_every(), 0, kMaxSteps);
}

void CheckElastic(const v1::ElasticSpec& elastic, SpecRules& rules) {
  const bool least = rules.CheckRange("elastic.min_workers", elastic.min_workers(), 1, kMaxWorkers);
  // 0 is no bound.
  if (elastic.max_workers() != 0) {
    rules.CheckRange("elastic.max_workers", elastic.max_workers(),
                     least ? elastic.min_workers() : 1, kMaxWorkers);
  }
  if (elastic.failure_detection_ms() < kMinDetectionMs ||
      elastic.failure_detection_ms() > kMaxDetectionMs) {
    rules.Add("elastic.failure_detection",
              absl::StrCat(elastic.failure_detection_ms(),
                           "ms is out of range; the nearest valid value is ",
                           elastic.failure_detection_ms() < kMinDetectionMs ? "200ms" : "10m",
                           " (200ms to 10m)"));
  }
  rules.CheckRange("elastic.replicas", elastic.replicas(), 0, kMaxReplicas);
  if (NameOf(elastic.on_nan()).empty()) {
    rules.Add("elastic.on_nan", absl::StrCat("must be one of ", absl::StrJoin(OnNanNames(), ", ")));
  }
  rules.CheckRange("elastic.max_rollbacks", elastic.max_rollbacks(), 0, kMaxRollbacks);
}

void CheckCheckpoint(const v1::JobSpec& spec, SpecRules& rules) {
  const v1::CheckpointSpec& checkpoint = spec.checkpoint();
  const std::string& dir = checkpoint.dir();
  // The name is the default directory: what is wrong with it was said.
  if (dir != spec.name() && (dir.size() > kMaxPathLength || HasControl(dir))) {
    rules.Add("checkpoint.dir", absl::StrCat("must be a path of at most ", kMaxPathLength,
                                             " characters, none a control character"));
  }
  rules.CheckRange("checkpoint.every", checkpoint.every(), 0, kMaxSteps);
  rules.CheckRange("checkpoint.keep", checkpoint.keep(), 0, kMaxSteps);
  if (checkpoint.resume().size() > kMaxPathLength || HasControl(checkpoint.resume())) {
    rules.Add("checkpoint.resume",
              absl::StrCat("must be 'none', 'latest' or the path of a checkpoint of at most ",
                           kMaxPathLength, " characters, none a control character"));
  }
}

void CheckPrecision(const v1::PrecisionSpec& precision, SpecRules& rules) {
  const auto check = [&](absl::string_view field, v1::DataType type) {
    if (!NameOf(type).empty()) return;
    rules.Add(field, absl::StrCat("must be one of ", absl::StrJoin(DataTypeNames(), ", ")));
  };
  check("precision.compute", precision.compute());
  check("precision.grad", precision.grad());
}

}  // namespace

v1::InvalidFields ValidateJobSpec(const v1::JobSpec& spec) {
  SpecRules rules;
  CheckName(spec, rules);
  const int before_model = rules.count();
  CheckModel(spec.model(), rules);
  const bool model_is_right = rules.count() == before_model;
  CheckFrom(spec.model(), rules);
  CheckData(spec.data(), spec.model().vocab(), rules);
  CheckTrain(spec, rules);
  CheckParameterRules(spec, model_is_right, rules);
  CheckParallel(spec, rules);
  CheckPrecision(spec.precision(), rules);
  CheckElastic(spec.elastic(), rules);
  CheckCheckpoint(spec, rules);
  return std::move(rules).Take();
}

}  // namespace sherd
