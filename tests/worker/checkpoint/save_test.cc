#include "worker/checkpoint/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/training_world.h"
#include "worker/checkpoint/cancellable_file_system.h"
#include "worker/checkpoint/verify.h"

namespace sherd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class SaveTest : public testing::Test {
 protected:
  absl::Status Save(int64_t step, int64_t epoch = 1, const std::string& lineage = "first") {
    return SaveTraining(*files_, root_.path(), TrainingInfoOf(job_, step, epoch, lineage), world_);
  }
  absl::Status Keep(int64_t keep, int64_t epoch = 1, const std::string& lineage = "first") {
    return Retain(*files_, root_.path(), TrainingInfoOf(job_, 0, epoch, lineage), keep);
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_.path())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::string Error() { return CheckRoot(*files_, root_.path()).ToString(); }

  const v1::JobSpec job_ = SmallJob(v1::ARCHITECTURE_LLAMA, true);
  const TrainingWorld world_{
      job_, {.data = 2}, WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job_.model())))), 0};
  const TemporaryDirectory root_;
  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
};

TEST_F(SaveTest, LeavesADirectoryOfShardsAndAManifest) {
  ASSERT_TRUE(Save(100, 3).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step-00000100-epoch-3"));
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(root_ / "step-00000100-epoch-3")) {
    files.insert(entry.path().filename().string());
  }
  EXPECT_THAT(files, UnorderedElementsAre("manifest.json", "shard-00001-of-00002.safetensors",
                                          "shard-00002-of-00002.safetensors"));
}

// Of a rank that wrote slowly for an epoch that has ended, nothing is published.
TEST_F(SaveTest, EpochsDoNotWriteIntoEachOthersFiles) {
  const CheckpointInfo older = TrainingInfoOf(job_, 100, 3);
  ASSERT_TRUE(WriteSave(*files_, root_.path(), older, 0, 2, world_.Ranges(0)).ok());
  ASSERT_TRUE(Save(100, 4).ok());
  ASSERT_TRUE(WriteSave(*files_, root_.path(), older, 1, 2, world_.Ranges(0)).ok());
  EXPECT_EQ(Names().size(), 3u);
  ASSERT_TRUE(Keep(3, 4).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step-00000100-epoch-4"));
}

TEST_F(SaveTest, RanksMayWriteAtTheSameTimeInAnyOrder) {
  const CheckpointInfo info = TrainingInfoOf(job_, 5);
  std::vector<std::thread> ranks;
  for (const int rank : {1, 0}) {
    ranks.emplace_back([&, rank] {
      EXPECT_TRUE(WriteSave(*files_, root_.path(), info, rank, 2, world_.Ranges(rank)).ok());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const auto published =
      PublishSave(*files_, root_.path(), info, 2, TrainingTensorsOf(world_.plan(0).inventory));
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_EQ(published->path, root_ / "step-00000005-epoch-1");
  const absl::StatusOr<Manifest> manifest = ReadManifest(published->path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(published->bytes, manifest->shards[0].bytes + manifest->shards[1].bytes);
  EXPECT_TRUE(VerifyFiles(published->path, *manifest).ok());
}

TEST_F(SaveTest, IsNotPublishedBeforeEveryRankHasWritten) {
  const CheckpointInfo info = TrainingInfoOf(job_, 5);
  const std::vector<TensorDescription> tensors = TrainingTensorsOf(world_.plan(0).inventory);
  const auto publish = [&] {
    return PublishSave(*files_, root_.path(), info, 2, tensors).status();
  };
  ASSERT_TRUE(WriteSave(*files_, root_.path(), info, 0, 2, world_.Ranges(0)).ok());
  EXPECT_THAT(publish().ToString(), HasSubstr("shard-00002-of-00002.safetensors.done is missing"));
  // The same part twice is not all of it.
  ASSERT_TRUE(WriteSave(*files_, root_.path(), info, 1, 2, world_.Ranges(0)).ok());
  EXPECT_THAT(publish().ToString(), HasSubstr("missing or twice"));
  ASSERT_TRUE(WriteSave(*files_, root_.path(), info, 1, 2, world_.Ranges(1)).ok());
  // A file that is no longer what its rank wrote.
  const std::string shard = SaveStaging(root_.path(), info) + "/shard-00002-of-00002.safetensors";
  const auto size = std::filesystem::file_size(shard);
  std::filesystem::resize_file(shard, size + 8);
  EXPECT_FALSE(publish().ok());
  std::filesystem::resize_file(shard, size);
  // What ranks of an earlier attempt of another world left is not taken along.
  ASSERT_TRUE(WriteSave(*files_, root_.path(), info, 2, 3, world_.Ranges(0)).ok());
  EXPECT_TRUE(publish().ok());
  EXPECT_FALSE(
      std::filesystem::exists(root_ / "step-00000005-epoch-1/shard-00003-of-00003.safetensors"));
}

// Cancels before its n-th call.
class CancellingFileSystem final : public FileSystem {
 public:
  explicit CancellingFileSystem(int calls) : calls_(calls) {}
  CancellableFileSystem& cancellable() { return cancellable_; }
  bool cancelled() const { return calls_ < 0; }

  absl::Status MakeDirectories(const std::string& path) override {
    return Counted(), real_->MakeDirectories(path);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override {
    return Counted(), real_->Create(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return Counted(), real_->List(directory);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Counted(), real_->SyncDirectory(path);
  }
  absl::Status RenameOrExchange(const std::string& from, const std::string& to) override {
    return Counted(), real_->RenameOrExchange(from, to);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Counted(), real_->Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override { return Counted(), real_->Remove(path); }

 private:
  void Counted() {
    if (--calls_ < 0) cancellable_.Cancel();
  }
  const std::unique_ptr<FileSystem> real_ = MakePosixFileSystem();
  CancellableFileSystem cancellable_{*this};
  int calls_;
};

// Who gives up an epoch need not wait for what is being written.
TEST_F(SaveTest, EndsSoonWhenItIsCancelled) {
  const CheckpointInfo info = TrainingInfoOf(job_, 5);
  for (int calls = 0;; ++calls) {
    CancellingFileSystem files(calls);
    const absl::Status saved = SaveTraining(files.cancellable(), root_.path(), info, world_);
    if (!files.cancelled()) break;
    const auto search = FindNewestSound(*files_, root_.path());
    ASSERT_TRUE(search.ok()) << search.status();
    EXPECT_TRUE(saved.ok() || absl::IsCancelled(saved)) << saved;
    EXPECT_TRUE(search->skipped.empty());
    EXPECT_TRUE(!saved.ok() || search->found);
    DiscardSave(*files_, root_.path(), info);
    ASSERT_TRUE(files_->Remove(StepDirectory(root_.path(), 5, 1)).ok());
  }
}

TEST_F(SaveTest, WeightsAloneAreNoTrainingCheckpoint) {
  CheckpointInfo info = TrainingInfoOf(job_, 5);
  info.training.reset();
  EXPECT_TRUE(absl::IsInvalidArgument(SaveTraining(*files_, root_.path(), info, world_)));
  EXPECT_FALSE(std::filesystem::exists(root_ / "step-00000005-epoch-1"));
}

TEST_F(SaveTest, RetainsTheNewestByStepThenEpoch) {
  for (const auto& [step, epoch] : {std::pair(10, 1), {20, 1}, {20, 2}, {30, 2}, {15, 3}}) {
    ASSERT_TRUE(Save(step, epoch).ok());
  }
  ASSERT_TRUE(Keep(0).ok());
  EXPECT_EQ(Names().size(), 6u);
  ASSERT_TRUE(Keep(3).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step-00000030-epoch-2",
                                            "step-00000020-epoch-2", "step-00000020-epoch-1"));
  ASSERT_TRUE(Keep(1).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step-00000030-epoch-2"));
}

// What cannot be loaded does not count among those that are kept.
TEST_F(SaveTest, NeverRemovesTheOnlySoundOne) {
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(Save(step).ok());
  std::filesystem::resize_file(root_ / "step-00000030-epoch-1/shard-00001-of-00002.safetensors",
                               100);
  std::filesystem::remove(root_ / "step-00000020-epoch-1/manifest.json");
  ASSERT_TRUE(Keep(1).ok());
  // Those that are damaged stay for who wants to look at them.
  EXPECT_EQ(Names().size(), 4u);
  const auto search = FindNewestSound(*files_, root_.path());
  ASSERT_TRUE(search.ok() && search->found);
  EXPECT_EQ(search->found->manifest.info.step, 10);
  ASSERT_TRUE(Save(40).ok());
  ASSERT_TRUE(Keep(1).ok());
  EXPECT_THAT(Names(),
              UnorderedElementsAre("latest", "step-00000040-epoch-1", "step-00000020-epoch-1"));
}

// A job that starts anew in a directory keeps and counts its own.
TEST_F(SaveTest, RetainsEveryLineageByItself) {
  for (const int64_t step : {100, 200}) ASSERT_TRUE(Save(step, 1, "first").ok());
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(Save(step, 1, "second").ok());
  ASSERT_TRUE(Keep(1, 1, "second").ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step-00000100-epoch-1",
                                            "step-00000200-epoch-1", "step-00000030-epoch-1"));
}

TEST_F(SaveTest, RemovesWhatIsAbandonedAndNothingElse) {
  ASSERT_TRUE(Save(10).ok());
  root_.Write(".small-1.step-00000020-epoch-1.partial/shard-00001-of-00002.safetensors", "x");
  root_.Write(".small-1.epoch-1.partial/manifest.json", "x");
  root_.Write(".step-00000005-epoch-1.removing/manifest.json", "x");
  root_.Write(".latest.partial", "x");
  ASSERT_TRUE(Keep(3, 1).ok());
  EXPECT_EQ(Names().size(), 5u);  // of this epoch, but for what is being removed
  ASSERT_TRUE(RemoveAbandoned(*files_, root_.path()).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step-00000010-epoch-1"));
  EXPECT_TRUE(RemoveAbandoned(*files_, root_ / "nowhere").ok());
}

TEST_F(SaveTest, TakesADirectoryOfItsOwn) {
  EXPECT_EQ(Error(), "OK");
  ASSERT_TRUE(Save(10).ok());
  root_.Write("final/manifest.json", "x");
  root_.Write(".small-1.step-00000020-epoch-1.partial/x", "x");
  // Weights of an earlier version.
  root_.Write("manifest.json", "x");
  root_.Write("shard-00001-of-00001.safetensors", "x");
  EXPECT_EQ(Error(), "OK");
  root_.Write("final/thesis.tex", "x");
  EXPECT_THAT(Error(), HasSubstr("/final holds thesis.tex"));
  std::filesystem::remove(root_ / "final/thesis.tex");
  root_.Write("step-10-epoch-1", "x");
  EXPECT_THAT(Error(), HasSubstr("holds step-10-epoch-1, which is not of a checkpoint"));
  EXPECT_TRUE(CheckRoot(*files_, root_ / "nowhere").ok());
}

// A directory by the name of a checkpoint that holds something else is not replaced.
TEST_F(SaveTest, NeverReplacesAnythingElse) {
  root_.Write("step-00000010-epoch-1/thesis.tex", "years of work");
  EXPECT_TRUE(absl::IsFailedPrecondition(Save(10)));
  EXPECT_EQ(ReadFile(root_ / "step-00000010-epoch-1/thesis.tex"), "years of work");
}

}  // namespace
}  // namespace sherd
