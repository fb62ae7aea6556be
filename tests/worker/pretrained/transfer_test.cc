// `sherd import` and `sherd export`: what goes in comes out, byte for byte.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "plan/model_config.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/training_world.h"
#include "tests/worker/pretrained/golden_folder.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/verify.h"
#include "worker/pretrained/export.h"
#include "worker/pretrained/import.h"
#include "worker/pretrained/published_tensors.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<Exported> Export(const std::string& checkpoint, const std::string& folder,
                                ElementType type, int64_t shard_bytes = 1 << 30) {
  return ExportCheckpoint({.checkpoint = checkpoint,
                           .folder = folder,
                           .type = type,
                           .shard_bytes = shard_bytes,
                           .threads = 3});
}

class Transfer : public testing::TestWithParam<const char*> {
 protected:
  const TemporaryDirectory scratch_;
};

INSTANTIATE_TEST_SUITE_P(Golden, Transfer, testing::ValuesIn(kGoldenFolders));

// F41, F42, F50.
TEST_P(Transfer, AnImportedFolderIsExportedByteForByte) {
  const std::string golden = GoldenPath(GetParam());
  const auto imported = ImportFolder({golden, scratch_ / "checkpoint/", 2, 1000});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_GT(imported->files, 5);
  const absl::StatusOr<Manifest> manifest = ReadManifest(scratch_ / "checkpoint");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(VerifyFiles(scratch_ / "checkpoint", *manifest).ok());
  const auto exported = Export(scratch_ / "checkpoint", scratch_ / "out", GoldenType(GetParam()));
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->written.parameters, imported->parameters);
  EXPECT_TRUE(ReadFolder(scratch_ / "out") == ReadFolderAsExported(golden));
  EXPECT_THAT(NamesIn(scratch_ / "out"), ElementsAre("config.json", "model.safetensors"));
  // And once more, from what was written here, over several files.
  ASSERT_TRUE(ImportFolder({scratch_ / "out", scratch_ / "again", 1}).ok());
  const auto sharded = Export(scratch_ / "again", scratch_ / "cut", GoldenType(GetParam()), 3000);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_GT(sharded->written.files, 2);
  EXPECT_TRUE(ReadFolder(scratch_ / "cut") == ReadFolder(scratch_ / "out"));
  const auto reopened = PretrainedFolder::Open("", scratch_ / "cut");
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_TRUE(reopened->shape() == imported->model);
  EXPECT_THAT(NamesIn(scratch_.path()), ElementsAre("again", "checkpoint", "cut", "out"));
}

// A job of two times two ranks, as it would leave it, exported from there: the same bytes.
TEST_P(Transfer, WhateverLayoutWroteACheckpointTheFolderIsTheSame) {
  const auto folder = PretrainedFolder::Open("", GoldenPath(GetParam()));
  ASSERT_TRUE(folder.ok()) << folder.status();
  v1::JobSpec job = SmallJob(folder->model().arch(), folder->model().tie_embeddings());
  *job.mutable_model() = folder->model();
  Tensors tensors = LoadWhole(*folder);
  for (const TensorDescription& tensor : TrainingTensorsOf(BuildInventory(ShapeOf(job.model())))) {
    tensors.try_emplace(tensor.name, static_cast<size_t>(tensor.elements), 5.0f);
  }
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  for (const WorldLayout& layout :
       {WorldLayout{v1::STRATEGY_ZERO3, 2, 2, 0}, WorldLayout{v1::STRATEGY_DDP, 3, 1, 0}}) {
    const TrainingWorld world(job, layout, tensors, -1);
    const std::string root = scratch_ / std::to_string(layout.data);
    const absl::Status saved = SaveTraining(*files, root, TrainingInfoOf(job, 3), world);
    ASSERT_TRUE(saved.ok()) << saved;
    const auto exported = Export(root, root + ".out", GoldenType(GetParam()));
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_TRUE(ReadFolder(root + ".out") == ReadFolderAsExported(GoldenPath(GetParam())));
  }
}

class Transfers : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ImportFolder({GoldenPath("gpt2_fp32"), checkpoint_, 1}).ok());
  }
  const TemporaryDirectory scratch_;
  const std::string checkpoint_ = scratch_ / "checkpoint";
};

TEST_F(Transfers, NeverTakeThePlaceOfSomethingElse) {
  scratch_.Write("mine/config.json", "{}");
  for (const std::string& taken : {scratch_ / "mine", scratch_ / "mine/config.json"}) {
    const absl::Status exported = Export(checkpoint_, taken, ElementType::kF32).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(exported)) << exported;
    const absl::Status imported = ImportFolder({GoldenPath("gpt2_fp32"), taken, 1}).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(imported)) << imported;
  }
  EXPECT_FALSE(ImportFolder({GoldenPath("gpt2_fp32"), checkpoint_, 1}).ok());
  EXPECT_EQ(ReadFile(scratch_ / "mine/config.json"), "{}");
  std::filesystem::create_directory(scratch_ / "empty");
  EXPECT_TRUE(Export(checkpoint_, scratch_ / "empty", ElementType::kF32).ok());
}

// F44: whatever goes wrong, nothing half-written stays.
TEST_F(Transfers, LeaveNothingBehindWhenTheyFail) {
  RawTensors tensors = ReadFolder(GoldenPath("gpt2_fp32"));
  const float large = 1e6f;
  std::memcpy(tensors["transformer.wpe.weight"].bytes.data() + 8, &large, sizeof(large));
  CopyGolden("gpt2_fp32", scratch_ / "large");
  WriteSafetensors(scratch_ / "large/model.safetensors", tensors);
  ASSERT_TRUE(ImportFolder({scratch_ / "large", scratch_ / "l", 1}).ok());
  const absl::Status exported =
      Export(scratch_ / "l", scratch_ / "out", ElementType::kF16).status();
  EXPECT_TRUE(absl::IsOutOfRange(exported)) << exported;
  EXPECT_THAT(std::string(exported.message()),
              AllOf(HasSubstr("\"transformer.wpe.weight\""), HasSubstr("fp16")));
  const std::string shard = checkpoint_ + "/shard-00001-of-00001.safetensors";
  std::string damaged = ReadFile(shard);
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  scratch_.Write("checkpoint/shard-00001-of-00001.safetensors", damaged);
  const absl::Status lost = Export(checkpoint_, scratch_ / "out", ElementType::kF32).status();
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("shard-00001"));
  std::filesystem::resize_file(scratch_ / "large/model.safetensors", 3000);
  EXPECT_FALSE(ImportFolder({scratch_ / "large", scratch_ / "in", 1}).ok());
  EXPECT_THAT(NamesIn(scratch_.path()), ElementsAre("checkpoint", "l", "large"));
  EXPECT_TRUE(
      absl::IsNotFound(Export(scratch_ / "none", scratch_ / "o", ElementType::kF32).status()));
}

TEST_F(Transfers, CarryTheTokenizer) {
  const std::string tokenizer = scratch_.Write("folder/tokenizer.json", "{\"a\": 1}");
  CopyGolden("gpt2_fp32", scratch_ / "folder");
  ASSERT_TRUE(ImportFolder({scratch_ / "folder", scratch_ / "known", 1}).ok());
  auto exported = Export(scratch_ / "known", scratch_ / "a", ElementType::kF32);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->tokenizer, tokenizer);
  EXPECT_EQ(ReadFile(scratch_ / "a/tokenizer.json"), "{\"a\": 1}");
  std::filesystem::remove(tokenizer);
  exported = Export(scratch_ / "known", scratch_ / "b", ElementType::kF32);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->missing_tokenizer, tokenizer);
  const auto missing = ExportCheckpoint(
      {.checkpoint = checkpoint_, .folder = scratch_ / "c", .tokenizer = scratch_ / "none.json"});
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
}

// Nothing in the folder says that its tokens are bytes, so that is said to the user.
TEST_F(Transfers, SayWhyThereIsNoTokenizer) {
  const auto unknown = Export(checkpoint_, scratch_ / "unknown", ElementType::kF32);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_THAT(TokenizerNote(*unknown),
              AllOf(HasSubstr("does not say what its tokens stand for"), HasSubstr("--tokenizer")));
  const auto bytes = ExportCheckpoint(
      {.checkpoint = checkpoint_, .folder = scratch_ / "bytes", .tokenizer = "bytes"});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT(TokenizerNote(*bytes), HasSubstr("--tokenizer bytes"));
  EXPECT_THAT(NamesIn(scratch_ / "bytes"), ElementsAre("config.json", "model.safetensors"));
  // What a job of bytes leaves.
  v1::JobSpec job = SmallJob(v1::ARCHITECTURE_GPT2, true);
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const TrainingWorld world(
      job, {}, WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job.model())))), 0);
  ASSERT_TRUE(SaveTraining(*files, scratch_ / "job", TrainingInfoOf(job, 3), world).ok());
  const auto of_job = Export(scratch_ / "job", scratch_ / "of_job", ElementType::kF32);
  ASSERT_TRUE(of_job.ok()) << of_job.status();
  EXPECT_THAT(TokenizerNote(*of_job), HasSubstr("the model's tokens are bytes"));
  EXPECT_EQ(TokenizerNote({.written = {}, .tokenizer = "a", .missing_tokenizer = ""}), "");
  EXPECT_THAT(TokenizerNote({.written = {}, .tokenizer = "", .missing_tokenizer = "a"}),
              HasSubstr("the tokenizer a is not here"));
  // A run's directory is not that of its weights.
  std::filesystem::create_directory(scratch_ / "run");
  std::filesystem::rename(scratch_ / "job", scratch_ / "run/weights");
  EXPECT_THAT(Export(scratch_ / "run", scratch_ / "x", ElementType::kF32).status().ToString(),
              HasSubstr("did you mean"));
}

// Enough for several chunks a tensor, and for what a chunk of a transposed one holds.
TEST_F(Transfers, LargeTensorsAreConvertedInPieces) {
  std::filesystem::create_directory(scratch_ / "wide");
  std::string config = ReadFile(GoldenPath("gpt2_fp32") + "/config.json");
  nlohmann::json json = nlohmann::json::parse(config);
  json["n_embd"] = 1040;
  json["n_inner"] = 4160;
  json["n_layer"] = 1;
  json["n_positions"] = 3;
  json["vocab_size"] = 4500;
  scratch_.Write("wide/config.json", json.dump());
  const auto model = ParseModelConfig(json.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  RawTensors tensors;
  uint32_t next = 1;
  for (const PublishedTensor& tensor : PublishedTensorsOf(ShapeOf(*model))) {
    RawTensor& raw = tensors[tensor.name];
    raw = {"BF16", tensor.shape, std::string(static_cast<size_t>(2 * tensor.elements()), '\0')};
    for (char& byte : raw.bytes) {
      next = next * 1664525 + 1013904223;
      byte = static_cast<char>(next >> 25);
    }
  }
  WriteSafetensors(scratch_ / "wide/model.safetensors", tensors);
  ASSERT_TRUE(ImportFolder({scratch_ / "wide", scratch_ / "w", 2}).ok());
  const auto exported = Export(scratch_ / "w", scratch_ / "out", ElementType::kBF16);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_TRUE(ReadFolder(scratch_ / "out") == tensors);
}

}  // namespace
}  // namespace sherd
