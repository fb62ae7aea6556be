#include "plan/job_spec.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "plan/model_shape.h"
#include "plan/presets.h"
#include "plan/strategy.h"
#include "tests/plan/valid_spec.h"

namespace sherd {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::IsEmpty;

TEST(NormalizeJobSpec, FillsInThePresetAndTheDefaults) {
  const v1::JobSpec spec = NormalizeJobSpec(ValidSpec());
  EXPECT_EQ(spec.model().layers(), 6);
  EXPECT_EQ(spec.model().kv_heads(), 6);
  EXPECT_EQ(spec.model().ffn(), 1536);
  EXPECT_TRUE(spec.model().tie_embeddings());
  EXPECT_EQ(spec.data().tokenizer(), "bytes");
  EXPECT_EQ(spec.train().global_batch(), 32);
  EXPECT_EQ(spec.train().micro_batch(), 4);
  EXPECT_EQ(spec.train().seq_len(), 256);
  EXPECT_EQ(spec.train().schedule().min_lr(), spec.train().optimizer().lr() / 10);
  EXPECT_EQ(spec.parallel().strategy(), v1::STRATEGY_ZERO3);
  EXPECT_EQ(spec.precision().grad(), v1::DATA_TYPE_BF16);
  EXPECT_TRUE(spec.precision().reproducible());
  EXPECT_EQ(spec.elastic().failure_detection_ms(), 3000);
  EXPECT_EQ(spec.elastic().replicas(), 1);
  EXPECT_EQ(spec.elastic().on_nan(), v1::ON_NAN_STOP);
  EXPECT_EQ(spec.elastic().max_rollbacks(), 3);
  EXPECT_EQ(spec.checkpoint().dir(), "job");
  EXPECT_EQ(spec.checkpoint().every(), 0);
  EXPECT_EQ(spec.checkpoint().keep(), 3);
  EXPECT_EQ(spec.checkpoint().resume(), "none");
  EXPECT_THAT(Violations(spec), IsEmpty());
}

TEST(NormalizeJobSpec, IsIdempotent) {
  const v1::JobSpec once = NormalizeJobSpec(ValidSpec());
  EXPECT_TRUE(MessageDifferencer::Equals(once, NormalizeJobSpec(once)));
  const v1::JobSpec empty = NormalizeJobSpec(v1::JobSpec());
  EXPECT_TRUE(MessageDifferencer::Equals(empty, NormalizeJobSpec(empty)));
}

TEST(NormalizeJobSpec, KeepsWhatIsGivenBesideAPreset) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_model()->set_hidden(96);
  spec.mutable_train()->mutable_optimizer()->set_weight_decay(0);
  spec.mutable_train()->set_grad_clip(0);
  spec.mutable_train()->set_global_batch(6);
  spec.mutable_elastic()->set_replicas(0);
  spec.mutable_elastic()->set_max_rollbacks(0);
  spec.mutable_checkpoint()->set_keep(0);
  spec.mutable_precision()->set_reproducible(false);
  spec = NormalizeJobSpec(spec);
  EXPECT_FALSE(spec.precision().reproducible());
  EXPECT_EQ(spec.elastic().replicas(), 0);
  EXPECT_EQ(spec.elastic().max_rollbacks(), 0);
  EXPECT_EQ(spec.checkpoint().keep(), 0);
  EXPECT_EQ(spec.model().hidden(), 96);
  EXPECT_EQ(spec.model().ffn(), 384);
  EXPECT_EQ(spec.train().optimizer().weight_decay(), 0);
  EXPECT_EQ(spec.train().grad_clip(), 0);
  // The default micro-batch divides what was given.
  EXPECT_EQ(spec.train().micro_batch(), 2);
}

TEST(Presets, AreTheirPublishedSizesAndValid) {
  struct Size {
    const char* name;
    int64_t layers, hidden, heads, vocab, context;
  };
  for (const Size& size :
       {Size{"gpt2-124m", 12, 768, 12, 50257, 1024}, Size{"gpt2-355m", 24, 1024, 16, 50257, 1024},
        Size{"gpt2-774m", 36, 1280, 20, 50257, 1024},
        Size{"gpt2-1.5b", 48, 1600, 25, 50257, 1024}}) {
    v1::JobSpec spec = ValidSpec();
    spec.mutable_model()->set_preset(size.name);
    spec = NormalizeJobSpec(spec);
    EXPECT_THAT(Violations(spec), IsEmpty()) << size.name;
    const ModelShape shape = ShapeOf(spec.model());
    EXPECT_EQ(shape.layers, size.layers);
    EXPECT_EQ(shape.hidden, size.hidden);
    EXPECT_EQ(shape.heads, size.heads);
    EXPECT_EQ(shape.vocab, size.vocab);
    EXPECT_EQ(shape.context, size.context);
    EXPECT_EQ(shape.head_size(), 64);
    EXPECT_TRUE(shape.tie_embeddings);
  }
  EXPECT_EQ(PresetNames().size(), 10u);
  EXPECT_FALSE(FindPreset("").has_value());
}

// config.json of the published models, field by field; parameters as their cards round them.
TEST(Presets, AreThePublishedLlamas) {
  struct Row {
    const char* name;
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, context;
    bool tied;
    double theta, factor;
    int64_t parameters;
  };
  for (const Row& row :
       {Row{"llama-15m", 5, 512, 8, 4, 1408, 256, 256, true, 1e4, 1, 14882304},
        Row{"llama-160m", 12, 768, 12, 12, 3072, 32000, 2048, false, 1e4, 1, 162417408},
        Row{"llama3-1b", 16, 2048, 32, 8, 8192, 128256, 131072, true, 5e5, 32, 1235814400},
        Row{"llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, false, 5e5, 1, 8030261248},
        Row{"llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, false, 5e5, 1, 70553706496}}) {
    v1::JobSpec spec = ValidSpec();
    spec.mutable_model()->set_preset(row.name);
    spec = NormalizeJobSpec(spec);
    EXPECT_THAT(Violations(spec), IsEmpty()) << row.name;
    const ModelShape shape = ShapeOf(spec.model());
    EXPECT_EQ(shape.arch, Architecture::kLlama);
    EXPECT_EQ(shape.layers, row.layers);
    EXPECT_EQ(shape.hidden, row.hidden);
    EXPECT_EQ(shape.heads, row.heads);
    EXPECT_EQ(shape.kv_heads, row.kv_heads);
    EXPECT_EQ(shape.ffn, row.ffn);
    EXPECT_EQ(shape.vocab, row.vocab);
    EXPECT_EQ(shape.context, row.context);
    EXPECT_EQ(shape.tie_embeddings, row.tied);
    EXPECT_EQ(shape.norm_eps, 1e-5);
    EXPECT_EQ(shape.rotary.theta, row.theta);
    EXPECT_EQ(shape.rotary.factor, row.factor);
    EXPECT_EQ(shape.rotary.low_freq_factor, 1);
    EXPECT_EQ(shape.rotary.high_freq_factor, 4);
    EXPECT_EQ(shape.rotary.original_context, 8192);
    EXPECT_EQ(BuildInventory(shape).elements, row.parameters) << row.name;
  }
}

// A preset of one architecture lends another one its sizes alone.
TEST(Presets, KeepTheirArchitecturesSettingsToIt) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_model()->set_preset("llama-15m");
  spec.mutable_model()->set_arch(v1::ARCHITECTURE_GPT2);
  spec = NormalizeJobSpec(spec);
  EXPECT_THAT(Violations(spec), IsEmpty());
  EXPECT_EQ(spec.model().kv_heads(), 8);
  EXPECT_EQ(spec.model().ffn(), 2048);
  spec = ValidSpec();
  spec.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
  spec = NormalizeJobSpec(spec);
  EXPECT_THAT(Violations(spec), IsEmpty());
  EXPECT_EQ(spec.model().ffn(), 1024);  // 8/3 of 384
  EXPECT_EQ(spec.model().rope_theta(), 10000);
}

TEST(Names, ReadBackForEveryValue) {
  for (const absl::string_view name : StrategyNames()) {
    EXPECT_EQ(NameOf(StrategyFromName(name)), name);
  }
  for (const absl::string_view name : ArchitectureNames()) {
    EXPECT_EQ(NameOf(ArchitectureFromName(name)), name);
  }
  for (const absl::string_view name : RecomputeNames()) {
    EXPECT_EQ(NameOf(RecomputeFromName(name)), name);
  }
  for (const absl::string_view name : OffloadNames()) {
    EXPECT_EQ(NameOf(OffloadFromName(name)), name);
  }
  for (const absl::string_view name : OnNanNames()) {
    EXPECT_EQ(NameOf(OnNanFromName(name)), name);
  }
  for (const absl::string_view name : DataTypeNames()) {
    EXPECT_EQ(NameOf(DataTypeFromName(name)), name);
  }
  for (const absl::string_view name : ScheduleKindNames()) {
    EXPECT_EQ(NameOf(ScheduleKindFromName(name)), name);
  }
  EXPECT_EQ(StrategyFromName("zero9"), v1::STRATEGY_UNSPECIFIED);
  EXPECT_EQ(NameOf(v1::STRATEGY_UNSPECIFIED), "");
  EXPECT_EQ(NameOf(v1::JOB_STATE_RECOVERING), "RECOVERING");
}

TEST(Nearest, FindsMisspellingsAndNothingElse) {
  EXPECT_EQ(Nearest("stratgy", {"strategy", "tensor"}), "strategy");
  EXPECT_EQ(Nearest("tensro", {"strategy", "tensor"}), "tensor");
  EXPECT_EQ(Nearest("BF16", {"fp32", "bf16"}), "bf16");
  EXPECT_EQ(Nearest("gpt-2", {"gpt2", "llama"}), "gpt2");
  // Of equals the one with more of the beginning, then with the nearer number.
  EXPECT_EQ(Nearest("zero4", {"zero1", "zero2", "zero3"}), "zero3");
  EXPECT_EQ(Nearest("zero0", {"zero1", "zero2", "zero3"}), "zero1");
  EXPECT_EQ(Nearest("trail", {"grail", "train"}), "train");
  EXPECT_EQ(Nearest("banana", {"strategy", "tensor"}), "");
  EXPECT_EQ(Nearest("", {"a"}), "");
  EXPECT_EQ(Nearest(std::string(1000, 'a'), {"a"}), "");
}

}  // namespace
}  // namespace sherd
