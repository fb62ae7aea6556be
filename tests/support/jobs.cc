#include "tests/support/jobs.h"

#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/check.h"
#include "plan/job_spec.h"

namespace sherd::testing {

std::vector<absl::string_view> StrategiesOf(int world) {
  std::vector<absl::string_view> strategies(std::begin(kStrategies), std::end(kStrategies));
  if (world % 2 == 0) strategies.push_back("hybrid 2");
  return strategies;
}

void SetStrategy(absl::string_view strategy, v1::JobSpec& spec) {
  const std::vector<std::string> words = absl::StrSplit(strategy, ' ');
  const std::string variant = words.size() > 1 ? words[1] : "";
  SHERD_CHECK(variant.empty() || variant == "all_reduce" || variant == "kept" || variant == "2");
  v1::ParallelSpec& parallel = *spec.mutable_parallel();
  parallel.set_strategy(StrategyFromName(words[0]));
  parallel.set_zero1_gradients(variant == "all_reduce" ? v1::GRADIENT_REDUCTION_ALL_REDUCE
                                                       : v1::GRADIENT_REDUCTION_REDUCE_SCATTER);
  parallel.set_reshard_after_forward(variant != "kept");
  parallel.set_shard_group(variant == "2" ? 2 : 0);
}

v1::JobSpec MakeJob(absl::string_view strategy, v1::DataType type, int64_t micro_batches,
                    const JobShape& shape, const std::string& text_path) {
  v1::JobSpec spec;
  spec.set_name("test");
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_arch(v1::ARCHITECTURE_GPT2);
  model.set_layers(shape.layers);
  model.set_hidden(shape.hidden);
  model.set_heads(shape.heads);
  model.set_ffn(shape.ffn);
  model.set_vocab(shape.vocab);
  model.set_context(shape.context);
  spec.mutable_data()->add_train(text_path);
  spec.mutable_train()->set_steps(shape.steps);
  spec.mutable_train()->set_micro_batch(shape.micro_batch);
  spec.mutable_train()->set_global_batch(shape.micro_batch * micro_batches);
  spec.mutable_train()->mutable_optimizer()->set_lr(1e-3);
  spec.mutable_parallel()->set_bucket_mb(0);
  SetStrategy(strategy, spec);
  spec.mutable_precision()->set_compute(type);
  // State that outlives its process is of tests of their own.
  spec.mutable_elastic()->set_replicas(0);
  spec = NormalizeJobSpec(std::move(spec));
  SHERD_CHECK(ValidateJobSpec(spec).fields_size() == 0);
  return spec;
}

void MakeLlama(v1::JobSpec& spec) {
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_arch(v1::ARCHITECTURE_LLAMA);
  model.set_kv_heads(1);
  model.mutable_rope_scaling()->set_factor(4);
  model.mutable_rope_scaling()->set_original_context(32);
  spec = NormalizeJobSpec(std::move(spec));
  SHERD_CHECK(ValidateJobSpec(spec).fields_size() == 0);
}

}  // namespace sherd::testing
