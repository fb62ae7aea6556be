#include "worker/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "worker/checkpoint/safetensors.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Units = std::vector<std::vector<float>>;

// F41: what any world wrote is read whole.
TEST(Checkpoint, EveryWorldWritesWhatAnyReads) {
  const TemporaryDirectory root;
  const auto files = MakePosixFileSystem();
  const TinyWeights weights(100);
  for (const int world : {1, 2, 3, 4, 5, 40}) {
    const std::string directory = root / std::to_string(world);
    ASSERT_TRUE(Save(*files, directory, weights, world, world).ok());
    Units units;
    const absl::StatusOr<int64_t> step = Load(directory, units);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(*step, world);
    EXPECT_EQ(units, weights.units);
  }
  // Nothing else is left: no staging directories.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root.path()), {}), 6);
}

TEST(Checkpoint, OneRankWritesTensorsUnderTheirOwnNamesAndShapes) {
  const TemporaryDirectory root;
  const TinyWeights weights(1);
  FaultyFileSystem sound;
  ASSERT_TRUE(Save(sound, root / "w", weights, 1, 1).ok());
  const auto header = ReadSafetensorsHeader(root / "w/shard-00001-of-00001.safetensors");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->entries.front().name, "wte.weight");
  EXPECT_EQ(header->entries.front().shape, (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(header->bytes % 8, 0);
}

// F43, F44: whatever the instant, the name stands for the old checkpoint or the new one, whole.
TEST(Checkpoint, ACrashAtAnyCallLeavesTheOldOneOrTheNewOne) {
  const TinyWeights old_weights(10);
  const TinyWeights new_weights(20);
  FaultyFileSystem sound;
  for (const bool replace : {false, true}) {
    bool survived = false;
    for (int64_t call = 0; !survived; ++call) {
      const TemporaryDirectory root;
      const std::string directory = root / "weights";
      if (replace) {
        ASSERT_TRUE(Save(sound, directory, old_weights, 3, 1).ok());
      }
      FaultyFileSystem files(call, FaultyFileSystem::Fault::kCrash);
      const absl::Status saved = Save(files, directory, new_weights, 2, 2);
      survived = files.calls() <= call;
      Units units;
      const absl::StatusOr<int64_t> step = Load(directory, units);
      if (saved.ok()) {
        ASSERT_TRUE(step.ok()) << step.status();
        EXPECT_EQ(*step, 2);
      }
      if (!step.ok()) {
        EXPECT_FALSE(replace) << call;
        EXPECT_TRUE(absl::IsNotFound(step.status())) << step.status();
        EXPECT_FALSE(std::filesystem::exists(directory));
      } else {
        EXPECT_EQ(units, *step == 1 ? old_weights.units : new_weights.units);
      }
      // The next attempt is not in the way of what the crash left.
      ASSERT_TRUE(Save(sound, directory, new_weights, 4, 3).ok());
      ASSERT_EQ(Load(directory, units).value_or(0), 3);
    }
  }
}

// F45: a call that fails is reported, and what stood there before still stands.
TEST(Checkpoint, AFullDiskAtAnyCallIsAnErrorAndKeepsTheOldOne) {
  const TinyWeights old_weights(10);
  const TinyWeights new_weights(20);
  FaultyFileSystem sound;
  for (int64_t call = 0;; ++call) {
    const TemporaryDirectory root;
    const std::string directory = root / "weights";
    ASSERT_TRUE(Save(sound, directory, old_weights, 1, 1).ok());
    FaultyFileSystem files(call, FaultyFileSystem::Fault::kOnce);
    const absl::Status saved = Save(files, directory, new_weights, 2, 2);
    if (files.calls() <= call) break;
    Units units;
    const absl::StatusOr<int64_t> step = Load(directory, units);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(*step, saved.ok() ? 2 : 1) << call;
    DiscardStaging(sound, directory, {"job-1", 2, 3, new_weights.shape, "bytes"});
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root.path()), {}), 1);
  }
}

TEST(Checkpoint, AFullDiskIsNamedAsSuch) {
  const auto file = MakePosixFileSystem()->Create("/dev/full");
  ASSERT_TRUE(file.ok());
  const absl::Status status = (*file)->Append("x");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("/dev/full"), HasSubstr("no space")));
}

// F46: no flipped bit of any file is loaded.
TEST(Checkpoint, EveryFlippedBitIsDetected) {
  const TemporaryDirectory root;
  const TinyWeights weights(5);
  FaultyFileSystem sound;
  const std::string directory = root / "w";
  ASSERT_TRUE(Save(sound, directory, weights, 2, 1).ok());
  int64_t flips = 0;
  for (const std::string name :
       {"manifest.json", "shard-00001-of-00002.safetensors", "shard-00002-of-00002.safetensors"}) {
    const std::string text = ReadFile(directory + "/" + name);
    std::fstream file(directory + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](size_t at, int byte) {
      file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
    };
    for (size_t i = 0; i < text.size(); ++i) {
      put(i, text[i] ^ (1 << (i % 8)));
      Units units;
      const absl::StatusOr<int64_t> step = Load(directory, units);
      ASSERT_FALSE(step.ok()) << name << " byte " << i;
      EXPECT_THAT(std::string(step.status().message()), HasSubstr(directory));
      put(i, text[i]);
      ++flips;
    }
  }
  Units units;
  EXPECT_TRUE(Load(directory, units).ok());
  EXPECT_GT(flips, 2000);
}

TEST(Checkpoint, AMissingOrTruncatedFileIsNamed) {
  const TemporaryDirectory root;
  const TinyWeights weights(5);
  FaultyFileSystem sound;
  ASSERT_TRUE(Save(sound, root / "w", weights, 2, 1).ok());
  Units units;
  const std::string shard = root / "w/shard-00002-of-00002.safetensors";
  std::filesystem::resize_file(shard, 100);
  EXPECT_THAT(Load(root / "w", units).status().ToString(),
              AllOf(HasSubstr(shard), HasSubstr("damaged")));
  std::filesystem::remove(shard);
  EXPECT_THAT(Load(root / "w", units).status().ToString(),
              AllOf(HasSubstr(shard), HasSubstr("missing")));
  std::filesystem::remove(root / "w/manifest.json");
  EXPECT_THAT(Load(root / "w", units).status().ToString(),
              AllOf(HasSubstr(root / "w"), HasSubstr("no complete checkpoint")));
  EXPECT_TRUE(absl::IsNotFound(Load(root / "nowhere", units).status()));
}

TEST(Checkpoint, IsNotPublishedUnlessEveryElementIsThereOnce) {
  const TemporaryDirectory root;
  const TinyWeights weights(5);
  FaultyFileSystem sound;
  const std::string directory = root / "w";
  const CheckpointInfo info{"job", 1, 1, weights.shape, "bytes"};
  const std::string staging = StagingDirectory(directory, info);
  const auto publish = [&](std::vector<std::vector<TensorRange>> ranks) {
    EXPECT_TRUE(PrepareStaging(sound, directory, info).ok());
    std::vector<ShardFileInfo> shards;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      shards.push_back(*WriteShard(sound, staging, static_cast<int>(rank),
                                   static_cast<int>(ranks.size()), ranks[rank]));
    }
    return PublishCheckpoint(sound, directory, info, WeightsOf(weights.inventory), shards);
  };
  EXPECT_FALSE(publish({weights.Ranges(0, 2)}).ok());
  EXPECT_FALSE(publish({weights.Ranges(0, 1), weights.Ranges(1, 2)}).ok());
  EXPECT_FALSE(publish({weights.Ranges(0, 2), weights.Ranges(0, 2)}).ok());
  std::vector<TensorRange> more = weights.Ranges(0, 1);
  const float value = 1;
  more.push_back({"stranger", {1}, {0, 1}, 0, 1, &value});
  EXPECT_FALSE(publish({more}).ok());
  EXPECT_FALSE(std::filesystem::exists(directory));
  EXPECT_TRUE(publish({weights.Ranges(1, 2), weights.Ranges(0, 2)}).ok());
}

TEST(Checkpoint, NeverReplacesAnythingElse) {
  const TemporaryDirectory root;
  root.Write("w/thesis.tex", "years of work");
  const absl::Status status = Save(*MakePosixFileSystem(), root / "w", TinyWeights(1), 1, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("thesis.tex"));
  EXPECT_EQ(ReadFile(root / "w/thesis.tex"), "years of work");
}

TEST(ShardFileInfo, ReadsBackWhatItWritesAndNothingElse) {
  const ShardFileInfo info{"shard-00001-of-00002.safetensors", 12345, 0x00ab};
  EXPECT_EQ(*ShardFileInfo::Parse(info.Serialize()), info);
  for (const char* text : {"", "a", "a 1", "a 1 2", "../a 1 00000000000000ab",
                           "a -1 00000000000000ab", "a 1 00000000000000AB", "a 1 0 0"}) {
    EXPECT_FALSE(ShardFileInfo::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace sherd
