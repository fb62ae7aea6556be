// Jobs that start from a folder of the common Python stack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/pretrained/golden_folder.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "worker/pretrained/export.h"
#include "worker/train/inspect_job.h"

namespace sherd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kSeqLen = 8;

// Ids below every golden folder's vocabulary, two bytes each.
std::string SmallTokens() {
  std::string tokens;
  for (int i = 0; i < 3000; ++i) {
    tokens.push_back(static_cast<char>((i * 7 + i / 11) % 21));
    tokens.push_back('\0');
  }
  return tokens;
}

class PretrainedStart : public ::testing::Test {
 protected:
  v1::JobSpec Job(const std::string& folder, absl::string_view strategy, v1::DataType type,
                  int64_t tensor = 1) {
    v1::JobSpec spec = TinyJob(tokens_, strategy, type, 8, 1);
    const auto opened = PretrainedFolder::Open("", folder);
    EXPECT_TRUE(opened.ok()) << opened.status();
    *spec.mutable_model() = opened->model();
    spec.mutable_model()->set_from(folder);
    spec.mutable_data()->set_format(v1::DATA_FORMAT_TOKENS_U16);
    spec.mutable_train()->set_seq_len(kSeqLen);
    spec.mutable_parallel()->set_tensor(tensor);
    return NormalizeJobSpec(spec);
  }

  // So small a rate that no weight changes: what the job leaves is what it began with.
  static void StandStill(v1::JobSpec& spec) {
    v1::TrainSpec& train = *spec.mutable_train();
    train.mutable_optimizer()->set_lr(1e-30);
    train.mutable_optimizer()->set_weight_decay(0);
    train.mutable_schedule()->set_warmup(0);
    train.mutable_schedule()->set_min_lr(0);
  }

  static std::vector<RankRecord> Run(const v1::JobSpec& spec, int world, LocalEpoch epoch = {}) {
    std::vector<RankRecord> records = LocalWorld(spec, world, std::move(epoch)).Run();
    for (const RankRecord& record : records) {
      EXPECT_TRUE(record.result.status.ok()) << record.result.status;
    }
    return records;
  }

  const TemporaryDirectory scratch_;
  const std::string tokens_ = scratch_.Write("tokens.bin", SmallTokens());
};

// F5, F11, F14, F41, F50: read by two times two ranks and written by one, byte for byte.
TEST_F(PretrainedStart, EveryLayoutStartsFromTheFoldersBytes) {
  struct Layout {
    const char* strategy;
    int world;
    int64_t tensor;
  };
  for (const char* golden : kGoldenFolders) {
    for (const Layout& layout : {Layout{"zero3", 4, 2}, Layout{"zero1", 3, 1}, Layout{"ddp", 2, 1},
                                 Layout{"zero2", 2, 1}}) {
      for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
        SCOPED_TRACE(absl::StrCat(golden, " ", layout.strategy, " ", layout.world, " ", type));
        v1::JobSpec spec = Job(GoldenPath(golden), layout.strategy, type, layout.tensor);
        StandStill(spec);
        const std::vector<RankRecord> ranks = Run(spec, layout.world);
        EXPECT_THAT(ranks[0].log, Contains(HasSubstr("starts from the weights in ")));
        ExpectExactLedgers(ranks, golden);
        const std::string out = scratch_ / "out";
        const auto exported = ExportCheckpoint({.checkpoint = ranks[0].result.weights_path,
                                                .folder = out,
                                                .type = GoldenType(golden)});
        ASSERT_TRUE(exported.ok()) << exported.status();
        EXPECT_TRUE(ReadFolder(out) == ReadFolderAsExported(GoldenPath(golden)));
        std::filesystem::remove_all(out);
        std::filesystem::remove_all(ranks[0].result.weights_path);
      }
    }
  }
}

// What is computed with, and not only what is kept, comes from the folder: also where whole
// parameters are gathered from shards.
TEST_F(PretrainedStart, EveryStrategyBeginsWithTheSameLoss) {
  const std::string folder = GoldenPath("llama_scaled_bf16_sharded");
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    const double loss = Run(Job(folder, "ddp", type), 1)[0].steps.at(0).loss();
    // Random weights of that vocabulary would have about ln 21.
    EXPECT_GT(std::abs(loss - std::log(21.0)), 0.5);
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
      EXPECT_EQ(Run(Job(folder, strategy, type), 4)[0].steps.at(0).loss(), loss) << strategy;
    }
    const double split = Run(Job(folder, "zero3", type, 2), 4)[0].steps.at(0).loss();
    EXPECT_NEAR(split, loss, type == v1::DATA_TYPE_FP32 ? 1e-5 : 1e-2);
  }
}

// F42, F48: a job that died before its first commit begins again with the same bits, and what was
// committed or saved goes before the folder.
TEST_F(PretrainedStart, ALaterEpochWithoutAVersionReadsTheFolderAgain) {
  const std::string folder = GoldenPath("gpt2_untied_fp16_sharded");
  const v1::JobSpec spec = Job(folder, "zero3", v1::DATA_TYPE_BF16);
  const std::vector<RankRecord> first = Run(spec, 2);
  const std::vector<RankRecord> second = Run(spec, 3, {.epoch = 2});
  EXPECT_EQ(first[0].steps.at(0).loss(), second[0].steps.at(0).loss());
  EXPECT_EQ(first[0].steps.at(0).grad_norm(), second[0].steps.at(0).grad_norm());

  v1::JobSpec saving = spec;
  saving.mutable_train()->set_steps(3);
  saving.mutable_checkpoint()->set_every(2);
  saving.mutable_checkpoint()->set_dir(scratch_ / "saved");
  const std::vector<RankRecord> saved = Run(saving, 2);
  saving.mutable_checkpoint()->set_resume("latest");
  const std::vector<RankRecord> resumed = Run(saving, 2);
  ASSERT_EQ(resumed[0].steps.size(), 1u);
  EXPECT_EQ(resumed[0].steps[0].step(), 3);
  EXPECT_EQ(resumed[0].steps[0].loss(), saved[0].steps.at(2).loss());
}

// F22: what one rank cannot read is the same error on all of them, and is no reason to try again.
TEST_F(PretrainedStart, AFolderThatHasChangedEndsTheJobWithTheReason) {
  const std::string folder = scratch_ / "folder";
  CopyGolden("llama_tied_fp16", folder);
  const v1::JobSpec spec = Job(folder, "zero3", v1::DATA_TYPE_FP32);
  const auto expect_error = [&](const std::string& sentence) {
    const std::vector<RankRecord> records = LocalWorld(spec, 2).Run();
    EXPECT_TRUE(records[0].result.final);
    for (const RankRecord& record : records) {
      EXPECT_THAT(std::string(record.result.status.message()), HasSubstr(sentence));
    }
  };
  std::filesystem::remove_all(folder);
  CopyGolden("llama_untied_fp32", folder);
  expect_error("holds a model of another shape than when the job was submitted");
  std::filesystem::remove_all(folder);
  expect_error("folder/config.json does not exist");
}

TEST_F(PretrainedStart, WorkersTellTheShapeWhenTheJobIsSubmitted) {
  CopyGolden("llama_tied_fp16", scratch_ / "data/model");
  scratch_.Write("data/tokens.bin", SmallTokens().substr(0, 2 * 64));
  TrainerOptions options;
  options.data_root = scratch_ / "data";
  options.output_root = scratch_ / "output";
  std::filesystem::create_directory(options.output_root);
  v1::InspectData request;
  request.set_model_from("model");
  request.mutable_data()->add_train("tokens.bin");
  request.mutable_data()->set_format(v1::DATA_FORMAT_TOKENS_U16);
  // Without a length of its own a sequence is as long as the folder's context, 64.
  const auto short_data = InspectJob(request, options);
  EXPECT_THAT(std::string(short_data.status().message()),
              AllOf(StartsWith("data.train: "), HasSubstr("train.seq_len 64")));
  request.set_seq_len(kSeqLen);
  const auto found = InspectJob(request, options);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->model().kv_heads(), 1);
  EXPECT_EQ(found->model().rope_scaling().factor(), 8);
  scratch_.Write("data/tokens.bin", std::string(128, '\x16'));
  EXPECT_THAT(std::string(InspectJob(request, options).status().message()),
              StartsWith("data.train: "));
  request.set_model_from("../elsewhere");
  EXPECT_THAT(std::string(InspectJob(request, options).status().message()),
              StartsWith("model.from: "));
}

}  // namespace
}  // namespace sherd::testing
