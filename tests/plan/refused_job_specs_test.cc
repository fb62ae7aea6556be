// What a specification is refused for, word by word.

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plan/job_spec.h"
#include "tests/plan/valid_spec.h"

namespace sherd {
namespace {

struct Violation {
  const char* name;
  std::function<void(v1::JobSpec&)> spoil;
  std::vector<std::string> expected;
};

class ValidateJobSpecRefuses : public ::testing::TestWithParam<Violation> {};

// F55: the field by its name in the job file, and what would be right.
TEST_P(ValidateJobSpecRefuses, NamesTheFieldAndTheNearestValue) {
  v1::JobSpec spec = ValidSpec();
  GetParam().spoil(spec);
  EXPECT_EQ(Violations(spec), GetParam().expected);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Model, ValidateJobSpecRefuses,
    ::testing::Values(
        Violation{"HeadsThatDoNotDivide",
                  [](v1::JobSpec& s) { s.mutable_model()->set_heads(5); },
                  {"model.heads: heads 5 does not divide hidden 384; the nearest that do are 4 "
                   "and 6"}},
        Violation{"HeadsTooWide",
                  [](v1::JobSpec& s) { s.mutable_model()->set_heads(1); },
                  {"model.heads: heads 1 of hidden 384 have 384 channels, and attention takes at "
                   "most 256; the fewest that will do are 2"}},
        Violation{"HeadsTooWideForPairs",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
                    s.mutable_model()->set_preset("");
                    s.mutable_model()->set_layers(1);
                    s.mutable_model()->set_hidden(770);
                    s.mutable_model()->set_heads(1);
                    s.mutable_model()->set_vocab(256);
                    s.mutable_model()->set_context(256);
                  },
                  {"model.heads: heads 1 of hidden 770 have 770 channels, and attention takes at "
                   "most 256; the fewest that will do are 5"}},
        Violation{"NoHeadsAreNarrow",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_hidden(65521);
                    s.mutable_model()->set_heads(1);
                    s.mutable_model()->set_ffn(4);
                  },
                  {"model.heads: heads 1 of hidden 65521 have 65521 channels, and attention takes "
                   "at most 256; no number of heads divides this hidden into such"}},
        Violation{"MoreHeadsThanHidden",
                  [](v1::JobSpec& s) { s.mutable_model()->set_heads(400); },
                  {"model.heads: heads 400 does not divide hidden 384; the nearest that does is "
                   "384"}},
        Violation{"NegativeLayers",
                  [](v1::JobSpec& s) { s.mutable_model()->set_layers(-3); },
                  {"model.layers: -3 is out of range; the nearest valid value is 1 (1 to 1000)"}},
        Violation{"OtherKvHeads",
                  [](v1::JobSpec& s) { s.mutable_model()->set_kv_heads(3); },
                  {"model.kv_heads: gpt2 has as many key and value heads as heads; 6 would be "
                   "right"}},
        Violation{
            "UnknownArchitecture",
            [](v1::JobSpec& s) { s.mutable_model()->set_arch(static_cast<v1::Architecture>(9)); },
            {"model.arch: must be one of gpt2, llama"}},
        Violation{"LlamasSettings",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_norm_eps(1e-6);
                    s.mutable_model()->set_rope_theta(1e4);
                    s.mutable_model()->mutable_rope_scaling()->set_factor(2);
                  },
                  {"model.norm_eps: is a setting of llama; leave it out for gpt2",
                   "model.rope_theta: is a setting of llama; leave it out for gpt2",
                   "model.rope_scaling: is a setting of llama; leave it out for gpt2"}},
        Violation{"KvHeadsThatDoNotDivide",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
                    s.mutable_model()->set_kv_heads(4);
                  },
                  {"model.kv_heads: kv_heads 4 does not divide heads 6; the nearest that do are 3 "
                   "and 6"}},
        Violation{"MoreKvHeadsThanHeads",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
                    s.mutable_model()->set_kv_heads(12);
                  },
                  {"model.kv_heads: 12 is out of range; the nearest valid value is 6 (1 to 6)"}},
        Violation{"HeadsOfAnOddSize",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
                    s.mutable_model()->set_hidden(390);
                    s.mutable_model()->set_heads(10);
                  },
                  {"model.heads: heads 10 of hidden 390 have 39 channels, and llama turns pairs of "
                   "channels; the nearest that do are 5 and 13"}},
        Violation{
            "HiddenBesideThePresetsHeads",
            [](v1::JobSpec& s) {
              s.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
              s.mutable_model()->set_hidden(390);
            },
            {"model.hidden: hidden 390 is no multiple of twice heads 6, which the preset "
             "'gpt2-bytes' has; give other heads, or another hidden; the nearest are 384 and 396"}},
        Violation{"AnOddHidden",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
                    s.mutable_model()->set_hidden(45);
                    s.mutable_model()->set_heads(5);
                  },
                  {"model.hidden: hidden 45 is odd, and llama turns pairs of channels; the nearest "
                   "valid value is 46"}},
        Violation{"RotaryOutOfRange",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_arch(v1::ARCHITECTURE_LLAMA);
                    s.mutable_model()->set_norm_eps(kNan);
                    s.mutable_model()->set_rope_theta(-1);
                    v1::RopeScaling& scaling = *s.mutable_model()->mutable_rope_scaling();
                    scaling.set_low_freq_factor(5);
                    scaling.set_original_context(-8);
                  },
                  {"model.norm_eps: nan is not valid; it must be from 1e-30 to 1, as in 1e-5",
                   "model.rope_theta: -1 is not valid; it must be from 1 to 1e12, as in 10000",
                   "model.rope_scaling.factor: 0 is not valid; it must be 1 (no scaling) or above, "
                   "as in 32",
                   "model.rope_scaling.high_freq_factor: 4 is not valid; it must be above "
                   "low_freq_factor, which is 5",
                   "model.rope_scaling.original_context: -8 is out of range; the nearest valid "
                   "value is 1 (1 to 1048576)"}},
        Violation{"UnknownPreset",
                  [](v1::JobSpec& s) { s.mutable_model()->set_preset("gpt2-124"); },
                  {"model.preset: there is no preset 'gpt2-124'; did you mean 'gpt2-124m'? Presets "
                   "are gpt2-bytes, gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1.5b, llama-15m, "
                   "llama-160m, llama3-1b, llama3-8b, llama3-70b"}},
        Violation{"NoModel",
                  [](v1::JobSpec& s) { s.clear_model(); },
                  {"model.layers: must be given: a number from 1 to 1000",
                   "model.hidden: must be given: a number from 1 to 65536",
                   "model.heads: must be given: a number from 1 to 4096",
                   "model.vocab: must be given: a number from 1 to 16777216",
                   "model.context: must be given: a number from 1 to 1048576"}},
        Violation{"HugeSize",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_hidden(std::numeric_limits<int64_t>::max());
                    s.mutable_model()->set_ffn(4);
                  },
                  {"model.hidden: 9223372036854775807 is out of range; the nearest valid value is "
                   "65536 (1 to 65536)"}},
        Violation{"TooManyParameters",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_layers(1000);
                    s.mutable_model()->set_hidden(65536);
                    s.mutable_model()->set_heads(256);
                  },
                  {"model: the model has about 5.15396e+13 parameters; at most 4e+12 are "
                   "supported: lower layers, hidden, ffn or vocab"}},
        Violation{"SmallVocabulary",
                  [](v1::JobSpec& s) { s.mutable_model()->set_vocab(100); },
                  {"model.vocab: the tokenizer 'bytes' needs a vocabulary of at least 256; 100 is "
                   "too small"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Train, ValidateJobSpecRefuses,
    ::testing::Values(
        Violation{"NoSteps",
                  [](v1::JobSpec& s) { s.mutable_train()->clear_steps(); },
                  {"train.steps: must be given: a number from 1 to 1000000000"}},
        Violation{"BatchThatIsNoMultiple",
                  [](v1::JobSpec& s) {
                    s.mutable_train()->set_global_batch(10);
                    s.mutable_train()->set_micro_batch(4);
                  },
                  {"train.global_batch: global_batch 10 is not a multiple of micro_batch 4; the "
                   "nearest are 8 and 12"}},
        Violation{"MicroBatchAboveGlobal",
                  [](v1::JobSpec& s) {
                    s.mutable_train()->set_global_batch(2);
                    s.mutable_train()->set_micro_batch(4);
                  },
                  {"train.global_batch: global_batch 2 is not a multiple of micro_batch 4; the "
                   "nearest is 4"}},
        Violation{"NegativeBatches",
                  [](v1::JobSpec& s) {
                    s.mutable_train()->set_global_batch(-1);
                    s.mutable_train()->set_micro_batch(-2);
                  },
                  {"train.global_batch: -1 is out of range; the nearest valid value is 1 (1 to "
                   "16777216)",
                   "train.micro_batch: -2 is out of range; the nearest valid value is 1 (1 to "
                   "65536)"}},
        Violation{"TooManyMicroBatches",
                  [](v1::JobSpec& s) {
                    s.mutable_train()->set_global_batch(1 << 20);
                    s.mutable_train()->set_micro_batch(1);
                  },
                  {"train.micro_batch: makes more than 65536 micro-batches a step; 16 or more "
                   "would be right"}},
        Violation{"HugeMicroBatch",
                  [](v1::JobSpec& s) {
                    s.mutable_model()->set_context(1 << 20);
                    s.mutable_train()->set_global_batch(32);
                    s.mutable_train()->set_micro_batch(32);
                  },
                  {"train.micro_batch: micro_batch × seq_len is more than 16777216 tokens; the "
                   "nearest valid value is 16"}},
        Violation{"SequenceBeyondContext",
                  [](v1::JobSpec& s) { s.mutable_train()->set_seq_len(257); },
                  {"train.seq_len: 257 is out of range; the nearest valid value is 256 (1 to "
                   "256)"}},
        Violation{"NanLr",
                  [](v1::JobSpec& s) { s.mutable_train()->mutable_optimizer()->set_lr(kNan); },
                  {"train.optimizer.lr: nan is not valid; it must be a number above 0, as in "
                   "3e-4"}},
        Violation{"InfiniteClip",
                  [](v1::JobSpec& s) { s.mutable_train()->set_grad_clip(kInf); },
                  {"train.grad_clip: inf is not valid; it must be 0 (no clipping) or above, as in "
                   "1.0"}},
        Violation{"BetaOfOne",
                  [](v1::JobSpec& s) { s.mutable_train()->mutable_optimizer()->set_beta2(1); },
                  {"train.optimizer.betas: 1 is not valid; it must be at least 0 and below 1, as "
                   "in [0.9, 0.95]"}},
        Violation{"NegativeDecayAndEps",
                  [](v1::JobSpec& s) {
                    s.mutable_train()->mutable_optimizer()->set_eps(-1);
                    s.mutable_train()->mutable_optimizer()->set_weight_decay(-0.5);
                  },
                  {"train.optimizer.eps: -1 is not valid; it must be at least 1e-30, as in 1e-8",
                   "train.optimizer.weight_decay: -0.5 is not valid; it must be 0 or above, as in "
                   "0.1"}},
        Violation{"MinLrAboveLr",
                  [](v1::JobSpec& s) { s.mutable_train()->mutable_schedule()->set_min_lr(1); },
                  {"train.schedule.min_lr: 1 is not valid; it must be from 0 to lr, which is "
                   "0.0003"}},
        Violation{"WarmupBeyondSteps",
                  [](v1::JobSpec& s) { s.mutable_train()->mutable_schedule()->set_warmup(11); },
                  {"train.schedule.warmup: 11 is out of range; the nearest valid value is 10 (0 "
                   "to 10)"}},
        Violation{"UnknownSchedule",
                  [](v1::JobSpec& s) {
                    s.mutable_train()->mutable_schedule()->set_kind(
                        static_cast<v1::ScheduleKind>(99));
                  },
                  {"train.schedule.kind: must be one of cosine, constant, linear, wsd"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Rest, ValidateJobSpecRefuses,
    ::testing::Values(
        Violation{"NoName",
                  [](v1::JobSpec& s) { s.clear_name(); },
                  {"name: must be given: letters, digits, '.', '_' and '-', as in "
                   "'my-first-job'"}},
        Violation{"NameWithASlash",
                  [](v1::JobSpec& s) { s.set_name("../my job"); },
                  {"name: may hold letters, digits, '.', '_' and '-' only; '..-my-job' would be "
                   "right"}},
        Violation{"NameOfAFolder",
                  [](v1::JobSpec& s) { s.set_name(".."); },
                  {"name: may hold letters, digits, '.', '_' and '-' only; 'job' would be right"}},
        Violation{"LongName",
                  [](v1::JobSpec& s) { s.set_name(std::string(101, 'a')); },
                  {"name: has 101 characters; at most 100 are allowed"}},
        Violation{"NoData",
                  [](v1::JobSpec& s) { s.clear_data(); },
                  {"data.train: must list at least one file to train on, as in [corpus.txt]"}},
        Violation{
            "EmptyPath",
            [](v1::JobSpec& s) { s.mutable_data()->add_eval(""); },
            {"data.eval[0]: must be a path of 1 to 4096 characters, none a control character"}},
        Violation{
            "Format",
            [](v1::JobSpec& s) { s.mutable_data()->set_format(static_cast<v1::DataFormat>(9)); },
            {"data.format: must be one of text, jsonl, tokens_u16, llmc, megatron, "
             "prompt_completion"}},
        Violation{"SmallVocabularyForLines",
                  [](v1::JobSpec& s) {
                    s.mutable_data()->set_format(v1::DATA_FORMAT_JSONL);
                    s.mutable_model()->set_vocab(255);
                  },
                  {"model.vocab: the tokenizer 'bytes' needs a vocabulary of at least 256; 255 is "
                   "too small"}},
        Violation{
            "Tokenizer",
            [](v1::JobSpec& s) { s.mutable_data()->set_tokenizer("bpe\n.json"); },
            {"data.tokenizer: must be 'bytes' or the path of a tokenizer.json of at most 4096 "
             "characters, none a control character"}},
        Violation{"NoTensorDegree",
                  [](v1::JobSpec& s) { s.mutable_parallel()->set_tensor(-1); },
                  {"parallel.tensor: -1 is out of range; the nearest valid value is 1 (1 to "
                   "65536)"}},
        Violation{
            "UnknownOffload",
            [](v1::JobSpec& s) { s.mutable_parallel()->set_offload(static_cast<v1::Offload>(9)); },
            {"parallel.offload: must be one of none, optimizer"}},
        Violation{"NegativePrefetch",
                  [](v1::JobSpec& s) { s.mutable_parallel()->set_prefetch(-1); },
                  {"parallel.prefetch: -1 is out of range; the nearest valid value is 0 (0 to "
                   "16)"}},
        Violation{
            "UnknownType",
            [](v1::JobSpec& s) { s.mutable_precision()->set_grad(static_cast<v1::DataType>(9)); },
            {"precision.grad: must be one of fp32, bf16"}},
        Violation{"NegativeWorkers",
                  [](v1::JobSpec& s) { s.mutable_elastic()->set_min_workers(-1); },
                  {"elastic.min_workers: -1 is out of range; the nearest valid value is 1 (1 to "
                   "65536)"}},
        Violation{"MaxBelowMin",
                  [](v1::JobSpec& s) {
                    s.mutable_elastic()->set_min_workers(4);
                    s.mutable_elastic()->set_max_workers(2);
                  },
                  {"elastic.max_workers: 2 is out of range; the nearest valid value is 4 (4 to "
                   "65536)"}},
        Violation{"TooManyReplicas",
                  [](v1::JobSpec& s) { s.mutable_elastic()->set_replicas(17); },
                  {"elastic.replicas: 17 is out of range; the nearest valid value is 16 (0 to "
                   "16)"}},
        Violation{
            "UnknownOnNan",
            [](v1::JobSpec& s) { s.mutable_elastic()->set_on_nan(static_cast<v1::OnNan>(9)); },
            {"elastic.on_nan: must be one of stop, rollback"}},
        Violation{"NegativeRollbacks",
                  [](v1::JobSpec& s) { s.mutable_elastic()->set_max_rollbacks(-1); },
                  {"elastic.max_rollbacks: -1 is out of range; the nearest valid value is 0 (0 to "
                   "1000)"}},
        Violation{"NegativeEveryAndKeep",
                  [](v1::JobSpec& s) {
                    s.mutable_checkpoint()->set_every(-5);
                    s.mutable_checkpoint()->set_keep(-1);
                  },
                  {"checkpoint.every: -5 is out of range; the nearest valid value is 0 (0 to "
                   "1000000000)",
                   "checkpoint.keep: -1 is out of range; the nearest valid value is 0 (0 to "
                   "1000000000)"}},
        Violation{"ResumeOfNoPath",
                  [](v1::JobSpec& s) { s.mutable_checkpoint()->set_resume("a\nb"); },
                  {"checkpoint.resume: must be 'none', 'latest' or the path of a checkpoint of at "
                   "most 4096 characters, none a control character"}},
        Violation{"HastyDetection",
                  [](v1::JobSpec& s) { s.mutable_elastic()->set_failure_detection_ms(50); },
                  {"elastic.failure_detection: 50ms is out of range; the nearest valid value is "
                   "200ms (200ms to 10m)"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sherd
