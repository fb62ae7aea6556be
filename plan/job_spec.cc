#include "plan/job_spec.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "plan/model_folder.h"
#include "plan/presets.h"

namespace sherd {
namespace {

template <typename Enum>
struct Named {
  Enum value;
  absl::string_view name;
};

constexpr Named<v1::Strategy> kStrategies[] = {
    {v1::STRATEGY_DDP, "ddp"},     {v1::STRATEGY_ZERO1, "zero1"},   {v1::STRATEGY_ZERO2, "zero2"},
    {v1::STRATEGY_ZERO3, "zero3"}, {v1::STRATEGY_HYBRID, "hybrid"}, {v1::STRATEGY_AUTO, "auto"}};
constexpr Named<v1::Architecture> kArchitectures[] = {{v1::ARCHITECTURE_GPT2, "gpt2"},
                                                      {v1::ARCHITECTURE_LLAMA, "llama"}};
constexpr Named<v1::DataType> kDataTypes[] = {{v1::DATA_TYPE_FP32, "fp32"},
                                              {v1::DATA_TYPE_BF16, "bf16"}};
constexpr Named<v1::DataFormat> kDataFormats[] = {
    {v1::DATA_FORMAT_TEXT, "text"},
    {v1::DATA_FORMAT_JSONL, "jsonl"},
    {v1::DATA_FORMAT_TOKENS_U16, "tokens_u16"},
    {v1::DATA_FORMAT_LLMC, "llmc"},
    {v1::DATA_FORMAT_MEGATRON, "megatron"},
    {v1::DATA_FORMAT_PROMPT_COMPLETION, "prompt_completion"}};
constexpr Named<v1::ScheduleKind> kScheduleKinds[] = {{v1::SCHEDULE_KIND_COSINE, "cosine"},
                                                      {v1::SCHEDULE_KIND_CONSTANT, "constant"},
                                                      {v1::SCHEDULE_KIND_LINEAR, "linear"},
                                                      {v1::SCHEDULE_KIND_WSD, "wsd"}};
constexpr Named<v1::GradientReduction> kReductions[] = {
    {v1::GRADIENT_REDUCTION_REDUCE_SCATTER, "reduce_scatter"},
    {v1::GRADIENT_REDUCTION_ALL_REDUCE, "all_reduce"}};
constexpr Named<v1::Recompute> kRecomputes[] = {{v1::RECOMPUTE_NONE, "none"},
                                                {v1::RECOMPUTE_BLOCK, "block"}};
constexpr Named<v1::Offload> kOffloads[] = {{v1::OFFLOAD_NONE, "none"},
                                            {v1::OFFLOAD_OPTIMIZER, "optimizer"}};
constexpr Named<v1::OnNan> kOnNans[] = {{v1::ON_NAN_STOP, "stop"},
                                        {v1::ON_NAN_ROLLBACK, "rollback"}};
constexpr Named<v1::JobState> kJobStates[] = {
    {v1::JOB_STATE_QUEUED, "QUEUED"},       {v1::JOB_STATE_FORMING, "FORMING"},
    {v1::JOB_STATE_RUNNING, "RUNNING"},     {v1::JOB_STATE_RECOVERING, "RECOVERING"},
    {v1::JOB_STATE_SUCCEEDED, "SUCCEEDED"}, {v1::JOB_STATE_FAILED, "FAILED"},
    {v1::JOB_STATE_CANCELLED, "CANCELLED"}};

template <typename Enum, size_t kCount>
absl::string_view NameIn(const Named<Enum> (&table)[kCount], Enum value) {
  for (const Named<Enum>& row : table) {
    if (row.value == value) return row.name;
  }
  return "";
}

template <typename Enum, size_t kCount>
Enum ValueIn(const Named<Enum> (&table)[kCount], absl::string_view name) {
  for (const Named<Enum>& row : table) {
    if (row.name == name) return row.value;
  }
  return Enum{};
}

template <typename Enum, size_t kCount>
std::vector<absl::string_view> NamesIn(const Named<Enum> (&table)[kCount]) {
  std::vector<absl::string_view> names;
  for (const Named<Enum>& row : table) names.push_back(row.name);
  return names;
}

// Insertions, deletions, substitutions and swaps of neighbours, without regard to case.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  const auto same = [&](size_t i, size_t j) {
    return absl::ascii_tolower(a[i]) == absl::ascii_tolower(b[j]);
  };
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same(i - 1, j - 1) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1)) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

size_t CommonPrefix(absl::string_view a, absl::string_view b) {
  size_t length = 0;
  while (length < std::min(a.size(), b.size()) &&
         absl::ascii_tolower(a[length]) == absl::ascii_tolower(b[length])) {
    ++length;
  }
  return length;
}

// How far apart the last digits are; far where one ends otherwise.
int DigitDistance(absl::string_view a, absl::string_view b) {
  constexpr int kFar = 10;
  const bool digits = !a.empty() && !b.empty() && absl::ascii_isdigit(a.back()) != 0 &&
                      absl::ascii_isdigit(b.back()) != 0;
  return digits ? std::abs(a.back() - b.back()) : kFar;
}

// Of two candidates at one edit distance from `name`: the one with the longer beginning in common,
// then the one whose number at the end is nearer, as zero3 is to zero4.
bool IsLikelier(absl::string_view name, absl::string_view candidate, absl::string_view than) {
  if (than.empty()) return false;
  const size_t common = CommonPrefix(name, candidate);
  const size_t others = CommonPrefix(name, than);
  if (common != others) return common > others;
  return DigitDistance(name, candidate) < DigitDistance(name, than);
}

void FillFromPreset(const v1::ModelSpec& preset, v1::ModelSpec& model) {
  if (model.arch() == v1::ARCHITECTURE_UNSPECIFIED) model.set_arch(preset.arch());
  if (model.layers() == 0) model.set_layers(preset.layers());
  if (model.hidden() == 0) model.set_hidden(preset.hidden());
  if (model.heads() == 0) model.set_heads(preset.heads());
  if (model.vocab() == 0) model.set_vocab(preset.vocab());
  if (model.context() == 0) model.set_context(preset.context());
  // What means something to the preset's architecture alone.
  if (model.arch() != preset.arch()) return;
  if (model.kv_heads() == 0) model.set_kv_heads(preset.kv_heads());
  if (model.ffn() == 0) model.set_ffn(preset.ffn());
  if (!model.has_tie_embeddings()) model.set_tie_embeddings(preset.tie_embeddings());
  if (model.rope_theta() == 0) model.set_rope_theta(preset.rope_theta());
  if (!model.has_rope_scaling() && preset.has_rope_scaling()) {
    *model.mutable_rope_scaling() = preset.rope_scaling();
  }
}

int64_t DefaultFfn(const v1::ModelSpec& model) {
  const int64_t wide = 4 * model.hidden();
  if (model.arch() != v1::ARCHITECTURE_LLAMA) return wide;
  // The gate is a third matrix (Touvron et al. 2023): two thirds, in multiples of 256.
  constexpr int64_t kMultiple = 256;
  return (2 * wide / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

void FillLlama(v1::ModelSpec& model) {
  if (model.norm_eps() == 0) model.set_norm_eps(1e-5);
  if (model.rope_theta() == 0) model.set_rope_theta(10000);
  if (!model.has_rope_scaling()) return;
  v1::RopeScaling& scaling = *model.mutable_rope_scaling();
  if (scaling.low_freq_factor() == 0) scaling.set_low_freq_factor(1);
  if (scaling.high_freq_factor() == 0) scaling.set_high_freq_factor(4);
  if (scaling.original_context() == 0) scaling.set_original_context(8192);
}

void FillModel(v1::ModelSpec& model) {
  // A default would contradict what the folder says.
  if (AwaitsShape(model)) return;
  if (const std::optional<v1::ModelSpec> preset = FindPreset(model.preset())) {
    FillFromPreset(*preset, model);
  }
  if (model.arch() == v1::ARCHITECTURE_UNSPECIFIED) model.set_arch(v1::ARCHITECTURE_GPT2);
  if (model.kv_heads() == 0) model.set_kv_heads(model.heads());
  // Beyond this hidden is refused, and the product would overflow.
  constexpr int64_t kLargestFactor = INT64_MAX / 16;
  if (model.ffn() == 0 && model.hidden() > 0 && model.hidden() <= kLargestFactor) {
    model.set_ffn(DefaultFfn(model));
  }
  if (!model.has_tie_embeddings()) model.set_tie_embeddings(true);
  if (model.arch() == v1::ARCHITECTURE_LLAMA) FillLlama(model);
}

void FillOptimizer(v1::OptimizerSpec& optimizer) {
  if (optimizer.lr() == 0) optimizer.set_lr(3e-4);
  if (!optimizer.has_beta1()) optimizer.set_beta1(0.9);
  if (!optimizer.has_beta2()) optimizer.set_beta2(0.95);
  if (optimizer.eps() == 0) optimizer.set_eps(1e-8);
  if (!optimizer.has_weight_decay()) optimizer.set_weight_decay(0.1);
}

// A tenth of the steps, as far as warm-up leaves so many.
int64_t DefaultDecay(int64_t steps, int64_t warmup) {
  return std::max<int64_t>(1, std::min(steps / 10, steps - warmup));
}

// `open`: what is left out is chosen when the job starts.
void FillTrain(v1::TrainSpec& train, const v1::ModelSpec& model, bool open) {
  if (train.global_batch() == 0) train.set_global_batch(32);
  if (train.micro_batch() == 0 && train.global_batch() > 0 && !open) {
    train.set_micro_batch(std::gcd(train.global_batch(), int64_t{4}));
  }
  if (train.seq_len() == 0) train.set_seq_len(model.context());
  FillOptimizer(*train.mutable_optimizer());
  v1::ScheduleSpec& schedule = *train.mutable_schedule();
  if (schedule.kind() == v1::SCHEDULE_KIND_UNSPECIFIED) {
    schedule.set_kind(v1::SCHEDULE_KIND_COSINE);
  }
  if (!schedule.has_min_lr()) schedule.set_min_lr(train.optimizer().lr() / 10);
  if (schedule.kind() == v1::SCHEDULE_KIND_WSD && schedule.decay() == 0) {
    schedule.set_decay(DefaultDecay(train.steps(), schedule.warmup()));
  }
  if (!train.has_grad_clip()) train.set_grad_clip(1.0);
}

void FillParallel(v1::ParallelSpec& parallel) {
  if (parallel.strategy() == v1::STRATEGY_UNSPECIFIED) parallel.set_strategy(v1::STRATEGY_ZERO3);
  if (!parallel.has_prefetch()) parallel.set_prefetch(1);
  if (!parallel.has_bucket_mb()) parallel.set_bucket_mb(25);
  if (parallel.offload() == v1::OFFLOAD_UNSPECIFIED) parallel.set_offload(v1::OFFLOAD_NONE);
  // The rest is chosen when the job starts.
  if (parallel.strategy() == v1::STRATEGY_AUTO) return;
  if (parallel.tensor() == 0) parallel.set_tensor(1);
  if (!parallel.has_reshard_after_forward()) parallel.set_reshard_after_forward(true);
  if (parallel.zero1_gradients() == v1::GRADIENT_REDUCTION_UNSPECIFIED) {
    parallel.set_zero1_gradients(v1::GRADIENT_REDUCTION_REDUCE_SCATTER);
  }
  if (parallel.recompute() == v1::RECOMPUTE_UNSPECIFIED) {
    parallel.set_recompute(v1::RECOMPUTE_NONE);
  }
}

}  // namespace

absl::string_view NameOf(v1::Strategy strategy) { return NameIn(kStrategies, strategy); }
absl::string_view NameOf(v1::Architecture arch) { return NameIn(kArchitectures, arch); }
absl::string_view NameOf(v1::DataType type) { return NameIn(kDataTypes, type); }
absl::string_view NameOf(v1::DataFormat format) { return NameIn(kDataFormats, format); }
absl::string_view NameOf(v1::ScheduleKind kind) { return NameIn(kScheduleKinds, kind); }
absl::string_view NameOf(v1::GradientReduction reduction) { return NameIn(kReductions, reduction); }
absl::string_view NameOf(v1::Recompute recompute) { return NameIn(kRecomputes, recompute); }
absl::string_view NameOf(v1::Offload offload) { return NameIn(kOffloads, offload); }
absl::string_view NameOf(v1::OnNan on_nan) { return NameIn(kOnNans, on_nan); }
absl::string_view NameOf(v1::JobState state) { return NameIn(kJobStates, state); }

std::vector<absl::string_view> StrategyNames() { return NamesIn(kStrategies); }
std::vector<absl::string_view> ArchitectureNames() { return NamesIn(kArchitectures); }
std::vector<absl::string_view> DataTypeNames() { return NamesIn(kDataTypes); }
std::vector<absl::string_view> DataFormatNames() { return NamesIn(kDataFormats); }
std::vector<absl::string_view> ScheduleKindNames() { return NamesIn(kScheduleKinds); }
std::vector<absl::string_view> GradientReductionNames() { return NamesIn(kReductions); }
std::vector<absl::string_view> RecomputeNames() { return NamesIn(kRecomputes); }
std::vector<absl::string_view> OffloadNames() { return NamesIn(kOffloads); }
std::vector<absl::string_view> OnNanNames() { return NamesIn(kOnNans); }

bool IsText(v1::DataFormat format) {
  return format == v1::DATA_FORMAT_TEXT || format == v1::DATA_FORMAT_JSONL ||
         format == v1::DATA_FORMAT_PROMPT_COMPLETION;
}

v1::Strategy StrategyFromName(absl::string_view name) { return ValueIn(kStrategies, name); }
v1::Architecture ArchitectureFromName(absl::string_view name) {
  return ValueIn(kArchitectures, name);
}
v1::DataType DataTypeFromName(absl::string_view name) { return ValueIn(kDataTypes, name); }
v1::DataFormat DataFormatFromName(absl::string_view name) { return ValueIn(kDataFormats, name); }
v1::ScheduleKind ScheduleKindFromName(absl::string_view name) {
  return ValueIn(kScheduleKinds, name);
}
v1::GradientReduction GradientReductionFromName(absl::string_view name) {
  return ValueIn(kReductions, name);
}
v1::Recompute RecomputeFromName(absl::string_view name) { return ValueIn(kRecomputes, name); }
v1::Offload OffloadFromName(absl::string_view name) { return ValueIn(kOffloads, name); }
v1::OnNan OnNanFromName(absl::string_view name) { return ValueIn(kOnNans, name); }

std::string Nearest(absl::string_view name, const std::vector<absl::string_view>& candidates) {
  // Beyond this a "did you mean" is a guess, and the distance of a huge name costs too much.
  constexpr size_t kLongestName = 64;
  if (name.empty() || name.size() > kLongestName) return "";
  absl::string_view nearest;
  size_t least = std::max<size_t>(1, name.size() / 3) + 1;
  for (const absl::string_view candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < least || (distance == least && IsLikelier(name, candidate, nearest))) {
      least = distance;
      nearest = candidate;
    }
  }
  return std::string(nearest);
}

bool IsReproducible(const v1::PrecisionSpec& precision) {
  return !precision.has_reproducible() || precision.reproducible();
}

v1::JobSpec NormalizeJobSpec(v1::JobSpec spec) {
  FillModel(*spec.mutable_model());
  if (spec.data().format() == v1::DATA_FORMAT_UNSPECIFIED) {
    spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  }
  if (spec.data().tokenizer().empty()) spec.mutable_data()->set_tokenizer("bytes");
  FillTrain(*spec.mutable_train(), spec.model(), spec.parallel().strategy() == v1::STRATEGY_AUTO);
  FillParallel(*spec.mutable_parallel());
  v1::PrecisionSpec& precision = *spec.mutable_precision();
  if (precision.compute() == v1::DATA_TYPE_UNSPECIFIED) precision.set_compute(v1::DATA_TYPE_BF16);
  if (precision.grad() == v1::DATA_TYPE_UNSPECIFIED) precision.set_grad(precision.compute());
  precision.set_reproducible(IsReproducible(precision));
  v1::ElasticSpec& elastic = *spec.mutable_elastic();
  if (elastic.min_workers() == 0) elastic.set_min_workers(1);
  if (elastic.failure_detection_ms() == 0) elastic.set_failure_detection_ms(3000);
  if (!elastic.has_replicas()) elastic.set_replicas(1);
  if (elastic.on_nan() == v1::ON_NAN_UNSPECIFIED) elastic.set_on_nan(v1::ON_NAN_STOP);
  if (!elastic.has_max_rollbacks()) elastic.set_max_rollbacks(3);
  // A job without a place for its weights would train for nothing.
  v1::CheckpointSpec& checkpoint = *spec.mutable_checkpoint();
  if (checkpoint.dir().empty()) checkpoint.set_dir(spec.name());
  if (!checkpoint.has_keep()) checkpoint.set_keep(3);
  if (checkpoint.resume().empty()) checkpoint.set_resume("none");
  return spec;
}

}  // namespace sherd
