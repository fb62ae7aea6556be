#include "client/job_file.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/job_keys.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The published example with one alternative chosen wherever it offers several.
constexpr char kPublished[] =
    R"(name: tiny
model: {arch: gpt2, layers: 6, hidden: 384, heads: 6, kv_heads: 6, ffn: 1536, vocab: 256, context: 256, tie_embeddings: true}
data: {train: [a.txt, b.txt], eval: [c.txt], format: text, tokenizer: bytes}
train: {steps: 200, global_batch: 32, micro_batch: 4, seq_len: 256, seed: 1, optimizer: {lr: 3e-4, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1}, schedule: {kind: cosine, warmup: 20, min_lr: 3e-5}, grad_clip: 1.0, eval_every: 50}
parallel: {strategy: zero3, tensor: 1, shard_group: 0, zero1_gradients: reduce_scatter, reshard_after_forward: true, prefetch: 1, bucket_mb: 25, sequence_parallel: false, recompute: none, offload: none}
precision: {compute: bf16, grad: bf16, reproducible: true}
elastic: {min_workers: 1, max_workers: 8, replicas: 1, failure_detection: 3s, on_nan: rollback, max_rollbacks: 0}
checkpoint: {dir: weights, every: 100, keep: 0, resume: latest}
priority: 0
)";

std::string ErrorOf(absl::string_view text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<JobFile> file = ParseJobFile(text, "job.yaml", overrides);
  return file.ok() ? "" : std::string(file.status().message());
}

v1::JobSpec SpecOf(absl::string_view text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<JobFile> file = ParseJobFile(text, "job.yaml", overrides);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? file->spec : v1::JobSpec();
}

TEST(JobFile, KnowsEveryFormatOfData) {
  EXPECT_EQ(DataFormatNames().size(), 6u);
  for (const absl::string_view name : DataFormatNames()) {
    EXPECT_EQ(NameOf(SpecOf(absl::StrCat("data: {format: ", name, "}")).data().format()), name);
  }
}

TEST(JobFile, ReadsEveryFieldOfThePublishedExample) {
  const absl::StatusOr<JobFile> file = ParseJobFile(kPublished, "job.yaml", {});
  ASSERT_TRUE(file.ok()) << file.status();
  const v1::JobSpec& spec = file->spec;
  EXPECT_EQ(spec.name(), "tiny");
  EXPECT_EQ(spec.model().ffn(), 1536);
  EXPECT_TRUE(spec.model().tie_embeddings());
  EXPECT_EQ(spec.data().train(1), "b.txt");
  EXPECT_EQ(spec.train().optimizer().lr(), 3e-4);
  EXPECT_EQ(spec.train().optimizer().beta2(), 0.95);
  EXPECT_EQ(spec.train().schedule().warmup(), 20);
  EXPECT_EQ(spec.parallel().strategy(), v1::STRATEGY_ZERO3);
  EXPECT_EQ(spec.precision().grad(), v1::DATA_TYPE_BF16);
  EXPECT_EQ(spec.elastic().failure_detection_ms(), 3000);
  EXPECT_EQ(spec.checkpoint().dir(), "weights");
  EXPECT_TRUE(CheckJobFile(*file).ok()) << CheckJobFile(*file);
  EXPECT_EQ(spec.elastic().replicas(), 1);
  EXPECT_EQ(spec.elastic().on_nan(), v1::ON_NAN_ROLLBACK);
  EXPECT_EQ(spec.elastic().max_rollbacks(), 0);
  EXPECT_EQ(spec.checkpoint().every(), 100);
  EXPECT_EQ(spec.checkpoint().keep(), 0);
  EXPECT_EQ(spec.checkpoint().resume(), "latest");
}

TEST(JobFile, TakesAJobThatIsNotReproducible) {
  EXPECT_FALSE(IsReproducible(SpecOf("precision: {reproducible: false}").precision()));
  EXPECT_FALSE(IsReproducible(SpecOf(kPublished, {"precision.reproducible=false"}).precision()));
  EXPECT_TRUE(IsReproducible(SpecOf(kPublished).precision()));
  EXPECT_TRUE(IsReproducible(SpecOf("precision: {compute: fp32}").precision()));
}

struct Refusal {
  const char* name;
  const char* text;
  const char* error;
};

class JobFileRefuses : public ::testing::TestWithParam<Refusal> {};

// F55: every complaint names the file, the line and what would be right.
TEST_P(JobFileRefuses, NamesTheLineAndTheRemedy) {
  EXPECT_EQ(ErrorOf(GetParam().text), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    All, JobFileRefuses,
    ::testing::Values(
        Refusal{"MisspeltKey", "name: a\n\nparallel:\n  tensor: 1\n  stratgy: zero3\n",
                "job.yaml:5: unknown key 'stratgy' in parallel; did you mean 'strategy'?"},
        Refusal{"PatternWithoutQuotes", "data: {train: [*.txt]}",
                "job.yaml:1: aliases (*name) are not allowed in a job file; write the value out, "
                "and put a pattern in quotes, as in '*.txt'"},
        Refusal{"MisspeltSection", "name: a\nmodle: {layers: 1}\n",
                "job.yaml:2: unknown key 'modle'; did you mean 'model'?"},
        Refusal{"KeyInTheWrongSection", "steps: 20\n",
                "job.yaml:1: unknown key 'steps'; did you mean 'train.steps'?"},
        Refusal{"KeyLikeNothing", "elastic: {zzzzzz: 1}",
                "job.yaml:1: unknown key 'zzzzzz' in elastic; keys are min_workers, max_workers, "
                "replicas, failure_detection, on_nan, max_rollbacks"},
        Refusal{"WordForNumber", "train:\n  steps: many\n",
                "job.yaml:2: train.steps: 'many' must be a whole number, as in 32"},
        Refusal{"FractionForNumber", "train: {steps: 1.5}",
                "job.yaml:1: train.steps: '1.5' must be a whole number, as in 32"},
        Refusal{"QuotedNumber", "train: {steps: '20'}",
                "job.yaml:1: train.steps: '20' must be a whole number, as in 32"},
        Refusal{"NumberBeyondInt64", "train: {steps: 99999999999999999999}",
                "job.yaml:1: train.steps: '99999999999999999999' is out of range; whole numbers go "
                "from -9223372036854775808 to 9223372036854775807"},
        Refusal{"ZeroSteps", "train: {steps: 0}",
                "job.yaml:1: train.steps: 0 is out of range; the nearest valid value is 1"},
        Refusal{"ZeroLr", "train: {optimizer: {lr: 0}}",
                "job.yaml:1: train.optimizer.lr: 0 is not valid; it must be a number above 0"},
        Refusal{"NotANumber", "train: {optimizer: {lr: .nan}}",
                "job.yaml:1: train.optimizer.lr: '.nan' must be a finite number, as in 3e-4"},
        Refusal{"Infinity", "train: {grad_clip: inf}",
                "job.yaml:1: train.grad_clip: 'inf' must be a finite number, as in 3e-4"},
        Refusal{"MappingForGroups", "train: {optimizer: {groups: {parameters: '*'}}}",
                "job.yaml:1: train.optimizer.groups: a mapping must be a list, as in "
                "[{parameters: '*.bias', weight_decay: 0}]"},
        Refusal{"UnknownKeyOfAGroup",
                "train:\n  optimizer:\n    groups:\n    - {parameters: '*.bias'}\n"
                "    - {parameters: '*', weight_decy: 0}\n",
                "job.yaml:3: train.optimizer.groups: entry 1 in line 5: unknown key "
                "'weight_decy'; did you mean 'weight_decay'?"},
        Refusal{"GroupWithoutPattern", "train: {optimizer: {groups: [{lr_scale: 2}]}}",
                "job.yaml:1: train.optimizer.groups: entry 0 in line 1: must name parameters by a "
                "pattern, as in [{parameters: '*.bias', weight_decay: 0}]"},
        Refusal{"TextInAGroup", "train: {optimizer: {groups: [{parameters: '*', lr_scale: much}]}}",
                "job.yaml:1: train.optimizer.groups: entry 0 in line 1: lr_scale: 'much' must be a "
                "finite number, as in 3e-4"},
        Refusal{"TextForFreeze", "train: {freeze: wte.weight}",
                "job.yaml:1: train.freeze: 'wte.weight' must be a list of patterns, as in "
                "['wte.*', 'h.0.*']"},
        Refusal{"DecayOfNothing", "train: {schedule: {kind: wsd, decay: 0}}",
                "job.yaml:1: train.schedule.decay: 0 is out of range; the nearest valid value is "
                "1"},
        Refusal{"YesForTrue", "model: {tie_embeddings: yes}",
                "job.yaml:1: model.tie_embeddings: 'yes' must be true or false"},
        Refusal{"NegativeSeed", "train: {seed: -1}",
                "job.yaml:1: train.seed: -1 is out of range; the nearest valid value is 0"},
        Refusal{"ListForNumber", "train: {steps: [1]}",
                "job.yaml:1: train.steps: a list must be a whole number, as in 32"},
        Refusal{"NumberForSection", "name: a\ntrain: 3\n",
                "job.yaml:2: train must be a mapping of steps, global_batch, micro_batch, seq_len, "
                "seed, optimizer, schedule, grad_clip, eval_every, z_loss, label_smoothing, "
                "freeze"},
        Refusal{"NothingForNumber", "train:\n  steps:\n  seed: 1\n",
                "job.yaml:2: train.steps: an empty value must be a whole number, as in 32"},
        Refusal{"TextForPaths", "data: {train: corpus.txt}",
                "job.yaml:1: data.train: 'corpus.txt' must be a list, as in [corpus.txt] or "
                "[{path: corpus.txt, weight: 2.5}]"},
        Refusal{"OneBeta", "train: {optimizer: {betas: [0.9]}}",
                "job.yaml:1: train.optimizer.betas: must be a list of two numbers, as in "
                "[0.9, 0.95]"},
        Refusal{"UnknownStrategy", "parallel: {strategy: zero4}",
                "job.yaml:1: parallel.strategy: 'zero4' is not one of ddp, zero1, zero2, zero3, "
                "hybrid, auto; did you mean 'zero3'?"},
        Refusal{"StrategyWithoutItsStage", "parallel: {strategy: zero}",
                "job.yaml:1: parallel.strategy: 'zero' has stages: write zero1, zero2 or zero3"},
        Refusal{"TensorParallelAsStrategy", "parallel: {strategy: tensor_parallel}",
                "job.yaml:1: parallel.strategy: 'tensor_parallel' goes with a strategy: give its "
                "degree as parallel.tensor"},
        Refusal{"ShortNameOfTheTensorDegree", "parallel: {tp: 2}",
                "job.yaml:1: unknown key 'tp' in parallel; did you mean 'tensor'?"},
        Refusal{"TensorParallelOutsideOfParallel", "tensor_parallel: 2",
                "job.yaml:1: unknown key 'tensor_parallel'; did you mean 'parallel.tensor'?"},
        Refusal{"StageAsKey", "zero: 3",
                "job.yaml:1: unknown key 'zero'; did you mean 'parallel.strategy'?"},
        Refusal{"FsdpStrategy", "parallel: {strategy: FULL_SHARD}",
                "job.yaml:1: parallel.strategy: 'FULL_SHARD' is FSDP's name of what is called "
                "'zero3' here"},
        Refusal{"UnknownType", "precision: {compute: BF16}",
                "job.yaml:1: precision.compute: 'BF16' is not one of fp32, bf16; did you mean "
                "'bf16'?"},
        Refusal{"UnknownFormat", "data: {format: llm.c}",
                "job.yaml:1: data.format: 'llm.c' is not one of text, jsonl, tokens_u16, llmc, "
                "megatron, prompt_completion; did you mean 'llmc'?"},
        Refusal{"WordForReproducible", "precision: {reproducible: exactly}",
                "job.yaml:1: precision.reproducible: 'exactly' must be true or false"},
        Refusal{"UnknownOnNan", "elastic: {on_nan: rolback}",
                "job.yaml:1: elastic.on_nan: 'rolback' is not one of stop, rollback; did you mean "
                "'rollback'?"},
        Refusal{"WordForEvery", "checkpoint: {every: epoch}",
                "job.yaml:1: checkpoint.every: 'epoch' must be a whole number, as in 32"},
        Refusal{"EmptyResume", "checkpoint: {resume: ''}",
                "job.yaml:1: checkpoint.resume: must not be empty"},
        Refusal{"UnknownOffload", "parallel: {offload: optimiser}",
                "job.yaml:1: parallel.offload: 'optimiser' is not one of none, optimizer; did you "
                "mean 'optimizer'?"},
        Refusal{"NumberForSequenceParallel", "parallel: {sequence_parallel: 2}",
                "job.yaml:1: parallel.sequence_parallel: '2' must be true or false"},
        Refusal{"UnknownRecompute", "parallel: {recompute: blocks}",
                "job.yaml:1: parallel.recompute: 'blocks' is not one of none, block; did you mean "
                "'block'?"},
        Refusal{"RopeOfNothing", "model: {rope_scaling: {factor: 0}}",
                "job.yaml:1: model.rope_scaling.factor: 0 is not valid; it must be a number above "
                "0"},
        Refusal{"FolderWithoutName", "model: {from: ''}",
                "job.yaml:1: model.from: must not be empty"},
        Refusal{"DurationWithoutUnit", "elastic: {failure_detection: 3}",
                "job.yaml:1: elastic.failure_detection: '3' must be a time with its unit, as in 3s "
                "or 500ms"},
        Refusal{"PartOfAMillisecond", "elastic: {failure_detection: 0.5ms}",
                "job.yaml:1: elastic.failure_detection: '0.5ms' must be a time with its unit, as "
                "in 3s or 500ms"},
        Refusal{"PriorityBeyondInt32", "priority: 3000000000",
                "job.yaml:1: priority: 3000000000 is out of range; priorities go from -2147483648 "
                "to 2147483647"},
        Refusal{"SameKeyTwice", "train:\n  steps: 1\n  seed: 2\n  steps: 3\n",
                "job.yaml:4: key 'steps' stands twice; first at line 2"},
        Refusal{"Alias", "name: &n a\ncheckpoint: {dir: *n}\n",
                "job.yaml:1: anchors (&name) are not allowed in a job file"},
        Refusal{"Tag", "name: !!python/object a\n",
                "job.yaml:1: tags (!name) are not allowed in a job file"},
        Refusal{"KeyThatIsNoName", "? [a]\n: 1\n", "job.yaml:1: a key must be a name"},
        Refusal{"TwoDocuments", "name: a\n---\nname: b\n",
                "job.yaml:1: holds more than one document"},
        Refusal{"Empty", "", "job.yaml:1: the job file is empty"},
        Refusal{"AList", "- a\n- b\n",
                "job.yaml:1: a job file must be a mapping of name, priority, model, data, train, "
                "parallel, precision, elastic, checkpoint"},
        Refusal{"NotUtf8", "name: a\nmodel: \xff\n", "job.yaml:2: is not UTF-8 text"}),
    [](const auto& info) { return info.param.name; });

TEST(JobFile, ReportsEveryProblemAtOnce) {
  EXPECT_EQ(ErrorOf("nmae: a\ntrain:\n  steps: x\n  sed: 1\n"),
            "job.yaml:1: unknown key 'nmae'; did you mean 'name'?\n"
            "job.yaml:3: train.steps: 'x' must be a whole number, as in 32\n"
            "job.yaml:4: unknown key 'sed' in train; did you mean 'seed'?");
}

TEST(JobFile, SaysWhereBrokenYamlBreaks) {
  EXPECT_THAT(ErrorOf("name: a\ntrain: {steps: 1\nmodel: }\n"), StartsWith("job.yaml:3: not YAML"));
}

TEST(JobFile, RefusesWhatIsTooLargeOrTooDeep) {
  EXPECT_THAT(ErrorOf(absl::StrCat("name: ", std::string(1 << 20, 'a'))), HasSubstr("at most"));
  EXPECT_THAT(ErrorOf(absl::StrCat("name: ", std::string(100, '['), std::string(100, ']'))),
              HasSubstr("nested more than"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("job.yaml:1: "));
  std::string bomb = "a: &a [x,x]\n";
  for (char c = 'b'; c <= 'z'; ++c) {
    absl::StrAppend(&bomb, std::string(1, c), ": &", std::string(1, c), " [*",
                    std::string(1, static_cast<char>(c - 1)), "]\n");
  }
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("anchors"));
  std::string keys;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&keys, "k", i, ": 1\n");
  EXPECT_THAT(ErrorOf(keys), HasSubstr("keys in one mapping"));
}

TEST(JobFile, TakesOverridesByTheSameRules) {
  const v1::JobSpec spec =
      SpecOf("name: a\ntrain: {steps: 5, seed: 2}\ndata: {train: [x, y]}\n",
             {"train.steps=7", "data.train=[z]", "train.optimizer={lr: 1e-3}", "name=b", "name=c"});
  EXPECT_EQ(spec.train().steps(), 7);
  EXPECT_EQ(spec.train().seed(), 2u);
  EXPECT_THAT(spec.data().train(), ::testing::ElementsAre("z"));
  EXPECT_EQ(spec.train().optimizer().lr(), 1e-3);
  EXPECT_EQ(spec.name(), "c");

  EXPECT_EQ(ErrorOf("name: a", {"train.stps=7"}),
            "--set train.stps=7: unknown key 'stps' in train; did you mean 'steps'?");
  EXPECT_EQ(ErrorOf("name: a", {"train.steps=x"}),
            "--set train.steps=x: train.steps: 'x' must be a whole number, as in 32");
  EXPECT_EQ(ErrorOf("name: a", {"train.steps"}),
            "--set train.steps: must be KEY=VALUE, as in train.steps=20");
  EXPECT_THAT(ErrorOf("name: a", {"name=[a"}), StartsWith("--set name=[a: not YAML"));
}

TEST(JobFile, PointsInvalidFieldsAtTheirLine) {
  const absl::StatusOr<JobFile> file = ParseJobFile(
      "name: a\nmodel:\n  preset: gpt2-bytes\n  heads: 5\ndata:\n  train:\n    - x\n    - ''\n"
      "train:\n  steps: 3\n",
      "job.yaml", {"train.global_batch=10", "train.micro_batch=4"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(CheckJobFile(*file).message(),
            "job.yaml:4: model.heads: heads 5 does not divide hidden 384; the nearest that do are "
            "4 and 6\n"
            "job.yaml:8: data.train[1]: must be a path of 1 to 4096 characters, "
            "none a control character\n"
            "--set train.global_batch=10: train.global_batch: global_batch 10 is not a multiple "
            "of micro_batch 4; the nearest are 8 and 12");
  // A field that the file does not have: the section around it, else the file.
  EXPECT_EQ(OriginOf(*file, "train.schedule.warmup"), "job.yaml:9");
  EXPECT_EQ(OriginOf(*file, "elastic.min_workers"), "job.yaml");
}

// On the wire a 0 is a key that was not given.
TEST(JobFile, RefusesASizeOfZeroBesideAModelFromElsewhere) {
  EXPECT_EQ(ErrorOf("model: {preset: llama-15m, kv_heads: 0, ffn: 0}"),
            "job.yaml:1: model.kv_heads: 0, the default, says nothing beside model.preset, which "
            "has its own; write the number that you mean, or leave the key out\n"
            "job.yaml:1: model.ffn: 0, the default, says nothing beside model.preset, which has "
            "its own; write the number that you mean, or leave the key out");
  EXPECT_THAT(ErrorOf("model: {from: gpt2}", {"model.ffn=0"}),
              StartsWith("--set model.ffn=0: model.ffn: 0, the default, says nothing beside "
                         "model.from"));
  EXPECT_EQ(SpecOf("model: {layers: 1, kv_heads: 0, ffn: 0}").model().kv_heads(), 0);
  EXPECT_THAT(ErrorOf("model: {preset: llama-15m, arch: llama, ffn: 0}"), HasSubstr("model.ffn"));
  // Those of a preset of another architecture are not taken: there 0 says what it says elsewhere.
  const v1::ModelSpec other =
      NormalizeJobSpec(
          SpecOf("model: {preset: gpt2-bytes, arch: llama, kv_heads: 0}", {"model.ffn=0"}))
          .model();
  EXPECT_EQ(other.kv_heads(), 6);
  EXPECT_EQ(other.ffn(), 1024);
  // What is wrong with this one is said elsewhere.
  EXPECT_EQ(ErrorOf("model: {preset: gpt3, kv_heads: 0}"), "");
}

// What was not written is not to blame.
TEST(JobFile, BlamesWhatWasGivenBesideAPreset) {
  const auto problem = [](const char* model) {
    const absl::StatusOr<JobFile> file =
        ParseJobFile(absl::StrCat("name: a\nmodel: {preset: ", model,
                                  "}\ndata: {train: [x]}\ntrain: {steps: 3}\n"),
                     "job.yaml", {});
    return file.ok() ? std::string(CheckJobFile(*file).message()) : file.status().ToString();
  };
  EXPECT_EQ(problem("llama-15m, heads: 2"),
            "job.yaml:2: model.heads: heads 2 is no multiple of kv_heads 4, which the preset "
            "'llama-15m' has; give other kv_heads, or other heads; the nearest is 4");
  EXPECT_EQ(problem("gpt2-bytes, hidden: 400"),
            "job.yaml:2: model.hidden: hidden 400 is no multiple of heads 6, which the preset "
            "'gpt2-bytes' has; give other heads, or another hidden; the nearest are 396 and 402");
  EXPECT_EQ(
      problem("llama-15m, hidden: 520"),
      "job.yaml:2: model.hidden: hidden 520 is no multiple of twice heads 8, which the "
      "preset 'llama-15m' has; give other heads, or another hidden; the nearest are 512 and 528");
  EXPECT_EQ(problem("llama-15m, heads: 2, kv_heads: 2"), "");
}

TEST(JobFile, HasEveryKeyOnce) {
  std::vector<absl::string_view> paths;
  for (const JobKey& key : JobKeys()) {
    EXPECT_THAT(paths, ::testing::Not(::testing::Contains(key.path)));
    EXPECT_NE(key.read, nullptr) << key.path;
    paths.push_back(key.path);
  }
}

// Mutations of a valid file give an answer, never a crash; what is accepted survives validation.
TEST(JobFile, AnswersAnyMutation) {
  std::mt19937 random(7);
  const std::string base = kPublished;
  const std::string alphabet = "{}[]:,&*!?|>-#'\"\n\t %@`0123456789aez\xc3\xff";
  const auto pick = [&](size_t size) { return random() % size; };
  for (int round = 0; round < 3000; ++round) {
    std::string text = base;
    for (size_t change = 0, changes = 1 + pick(6); change < changes; ++change) {
      const size_t at = pick(text.size());
      switch (pick(4)) {
        case 0:
          text[at] = alphabet[pick(alphabet.size())];
          break;
        case 1:
          text.erase(at, 1 + pick(20));
          break;
        case 2:
          text.insert(at, 1 + pick(3), alphabet[pick(alphabet.size())]);
          break;
        case 3:
          text.insert(at, base.substr(pick(base.size()), pick(40)));
          break;
      }
      if (text.empty()) text = "a";
    }
    const absl::StatusOr<JobFile> file = ParseJobFile(text, "job.yaml", {});
    if (file.ok()) {
      ValidateJobSpec(NormalizeJobSpec(file->spec));
    } else {
      EXPECT_THAT(std::string(file.status().message()), StartsWith("job.yaml:"));
    }
  }
}

TEST(JobFile, NamesAFileThatCannotBeRead) {
  const absl::StatusOr<JobFile> missing = ReadJobFile("no/such/job.yaml", {});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(),
            "cannot read the job file 'no/such/job.yaml': No such file or directory");
  EXPECT_THAT(std::string(ReadJobFile("/", {}).status().message()), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace sherd
