#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/crash_file_system.h"
#include "tests/worker/checkpoint/training_world.h"
#include "worker/checkpoint/verify.h"

namespace sherd {
namespace {

using Fault = CrashFileSystem::Fault;

// Checkpoints with values of their own, of one small model.
class Saver {
 public:
  // What is saved there: `base` tells the values of one save from another's.
  absl::Status Save(FileSystem& files, const std::string& root, int64_t step, float base) {
    return SaveTraining(files, root, TrainingInfoOf(job_, step),
                        TrainingWorld(job_, {.data = 3}, Values(base), 0));
  }
  absl::Status Retain(FileSystem& files, const std::string& root, int64_t step) {
    return sherd::Retain(files, root, TrainingInfoOf(job_, step), 2);
  }
  CheckpointInfo Info(int64_t step) const { return TrainingInfoOf(job_, step); }

  Tensors Values(float base) const {
    return WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job_.model()))), base);
  }

 private:
  const v1::JobSpec job_ = SmallJob(v1::ARCHITECTURE_GPT2, true);
};

// A step, and the base of its values.
using Saved = std::pair<int64_t, float>;

struct Scenario {
  const char* name;
  // What stands there before, saved soundly.
  std::vector<Saved> before;
  Saved next;
  bool retains = false;
};

const Scenario kScenarios[] = {
    {"the first save", {}, {10, 5000}},
    {"a second save", {{10, 1000}}, {20, 5000}},
    {"a save in the place of another", {{10, 1000}, {20, 2000}}, {20, 5000}},
    {"a save, and older ones removed",
     {{10, 1000}, {20, 2000}, {30, 3000}, {40, 4000}},
     {50, 5000},
     true},
};

class CrashTest : public testing::Test {
 protected:
  void Prepare(const Scenario& scenario, CrashFileSystem& files, const std::string& root) {
    for (const auto& [step, base] : scenario.before) {
      ASSERT_TRUE(saver_.Save(files, root, step, base).ok());
    }
  }

  // What was saved last before, and what is being saved: the one of them that is found.
  // 0: nothing is found.
  void ExpectSound(const Scenario& scenario, const std::string& root, bool published) {
    const std::unique_ptr<FileSystem> real = MakePosixFileSystem();
    const absl::StatusOr<CheckpointSearch> search = ResolveResume(*real, root, "latest");
    ASSERT_TRUE(search.ok()) << search.status();
    EXPECT_TRUE(search->skipped.empty()) << search->skipped.front().why;
    std::vector<Saved> allowed = {scenario.next};
    if (!published && !scenario.before.empty()) allowed.push_back(scenario.before.back());
    if (!search->found) {
      EXPECT_TRUE(!published && scenario.before.empty());
      return;
    }
    const absl::StatusOr<Tensors> tensors = LoadTraining(*search->found);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    bool found = false;
    for (const auto& [step, base] : allowed) {
      found |= search->found->manifest.info.step == step && *tensors == saver_.Values(base);
    }
    EXPECT_TRUE(found) << "step " << search->found->manifest.info.step;
    // All that bears the name of a checkpoint is one.
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (!ParseStepName(entry.path().filename().string())) continue;
      const absl::StatusOr<Manifest> manifest = ReadSoundManifest(entry.path().string());
      ASSERT_TRUE(manifest.ok()) << manifest.status();
      EXPECT_TRUE(VerifyFiles(entry.path().string(), *manifest).ok());
    }
  }

  Saver saver_;
};

// F43, F44: at whatever call the machine or the processes die, and whatever of the unsynced is
// lost, the newest committed checkpoint or the one before it is there, whole.
TEST_F(CrashTest, ADeathAtAnyCallLeavesTheNewestOrTheOneBefore) {
  std::mt19937_64 random(11);
  int64_t points = 0;
  for (const Scenario& scenario : kScenarios) {
    bool survived = false;
    for (int64_t call = 0; !survived; ++call) {
      SCOPED_TRACE(absl::StrCat(scenario.name, ", call ", call));
      const TemporaryDirectory base;
      CrashFileSystem files(base.path());
      const std::string root = base / "out/weights";
      Prepare(scenario, files, root);
      files.FailAt(call, Fault::kCrash);
      const auto& [step, values] = scenario.next;
      const bool published = saver_.Save(files, root, step, values).ok();
      if (published && scenario.retains) saver_.Retain(files, root, step).IgnoreError();
      survived = !files.failed();
      EXPECT_TRUE(published || !survived);
      for (const Survives survives : {Survives::kNothing, Survives::kAll, Survives::kSome}) {
        const TemporaryDirectory after;
        files.LeaveAfterCrash(survives, random, after.path());
        ExpectSound(scenario, after / "out/weights", published);
        ++points;
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GE(points, 1000);
  RecordProperty("points", static_cast<int>(points));
}

// What a crash leaves is in nobody's way, and goes.
TEST_F(CrashTest, TheNextSaveSucceedsAfterAnyDeath) {
  const std::unique_ptr<FileSystem> real = MakePosixFileSystem();
  std::mt19937_64 random(12);
  const Scenario& scenario = kScenarios[3];
  bool survived = false;
  for (int64_t call = 0; !survived; ++call) {
    const TemporaryDirectory base;
    CrashFileSystem files(base.path());
    Prepare(scenario, files, base / "w");
    files.FailAt(call, Fault::kCrash);
    const auto& [step, values] = scenario.next;
    if (saver_.Save(files, base / "w", step, values).ok()) {
      saver_.Retain(files, base / "w", step).IgnoreError();
    }
    survived = !files.failed();
    const TemporaryDirectory after;
    files.LeaveAfterCrash(Survives::kSome, random, after.path());
    const std::string root = after / "w";
    ASSERT_TRUE(RemoveAbandoned(*real, root).ok());
    const absl::Status saved = saver_.Save(*real, root, step, values);
    ASSERT_TRUE(saved.ok()) << saved << " after call " << call;
    ASSERT_TRUE(saver_.Retain(*real, root, step).ok());
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      names.insert(entry.path().filename().string());
    }
    EXPECT_EQ(names,
              (std::set<std::string>{"latest", "step-00000040-epoch-1", "step-00000050-epoch-1"}))
        << "after call " << call;
  }
}

// F45: a call that fails is an error that names it, or is of no consequence; training goes on, what
// stood there stands, and what was written can be removed.
TEST_F(CrashTest, AFullDiskAtAnyCallKeepsTheOneBefore) {
  int64_t failures = 0;
  for (const Scenario& scenario : kScenarios) {
    bool survived = false;
    for (int64_t call = 0; !survived; ++call) {
      SCOPED_TRACE(absl::StrCat(scenario.name, ", call ", call));
      const TemporaryDirectory base;
      CrashFileSystem files(base.path());
      const std::string root = base / "w";
      Prepare(scenario, files, root);
      files.FailAt(call, Fault::kOnce);
      const auto& [step, values] = scenario.next;
      const absl::Status saved = saver_.Save(files, root, step, values);
      if (saved.ok() && scenario.retains) saver_.Retain(files, root, step).IgnoreError();
      survived = !files.failed();
      if (!saved.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(saved)) << saved;
        ++failures;
        DiscardSave(files, root, saver_.Info(step));
        EXPECT_FALSE(std::filesystem::exists(SaveStaging(root, saver_.Info(step))));
      }
      ExpectSound(scenario, root, saved.ok());
      ASSERT_FALSE(HasFatalFailure());
      // The next one finds room again.
      files.FailAt(INT64_MAX, Fault::kOnce);
      ASSERT_TRUE(saver_.Save(files, root, step + 10, 9000).ok());
      ASSERT_TRUE(saver_.Retain(files, root, step + 10).ok());
    }
  }
  EXPECT_GT(failures, 300);
}

// F46: whatever bit of the newest checkpoint flips, its bits are not loaded; the one before is.
TEST_F(CrashTest, AFlippedBitLeadsToTheOneBefore) {
  const TemporaryDirectory root;
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  ASSERT_TRUE(saver_.Save(*files, root.path(), 10, 1000).ok());
  ASSERT_TRUE(saver_.Save(*files, root.path(), 20, 5000).ok());
  const std::string newest = StepDirectory(root.path(), 20, 1);
  const absl::StatusOr<Manifest> sound = ReadSoundManifest(newest);
  ASSERT_TRUE(sound.ok());
  const Tensors before = saver_.Values(1000), after = saver_.Values(5000);
  std::vector<std::string> names = {kManifestFile};
  for (const ShardFileInfo& shard : sound->shards) names.push_back(shard.file);
  int64_t flips = 0;
  for (const std::string& name : names) {
    const std::string text = ReadFile(newest + "/" + name);
    for (size_t at = 0; at < text.size(); at += 29) {
      std::string flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      root.Write("step-00000020-epoch-1/" + name, flipped);
      ++flips;
      absl::StatusOr<CheckpointSearch> search = ResolveResume(*files, root.path(), "latest");
      ASSERT_TRUE(search.ok() && search->found) << name << " byte " << at;
      absl::StatusOr<Tensors> tensors = LoadTraining(*search->found);
      if (search->found->path == newest) {
        // What was flipped is of a file's header, which nobody believes; or it is detected.
        EXPECT_FALSE(VerifyFiles(newest, *sound).ok());
        if (tensors.ok()) {
          EXPECT_EQ(*tensors, after) << name << " byte " << at;
          continue;
        }
        EXPECT_TRUE(absl::IsDataLoss(tensors.status())) << tensors.status();
        search = FindNewestSound(*files, root.path(), "", {newest});
        ASSERT_TRUE(search.ok() && search->found);
        tensors = LoadTraining(*search->found);
      } else {
        ASSERT_EQ(search->skipped.size(), 1u);
        EXPECT_EQ(search->skipped[0].path, newest);
      }
      ASSERT_TRUE(tensors.ok()) << tensors.status();
      EXPECT_EQ(*tensors, before);
    }
    root.Write("step-00000020-epoch-1/" + name, text);
  }
  EXPECT_GT(flips, 500);
  EXPECT_TRUE(VerifyFiles(newest, *sound).ok());
}

// Whatever the hint says, what is there is found.
TEST_F(CrashTest, ADamagedHintHidesNothing) {
  const TemporaryDirectory root;
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  ASSERT_TRUE(saver_.Save(*files, root.path(), 10, 1000).ok());
  ASSERT_TRUE(saver_.Save(*files, root.path(), 20, 5000).ok());
  const std::string text = ReadFile(root / "latest");
  EXPECT_EQ(text, "step-00000020-epoch-1\nfirst\n");
  std::vector<std::string> hints = {"", "\n\n\n", std::string(5000, 'x'), "../../etc\nfirst\n"};
  for (size_t at = 0; at < text.size(); ++at) {
    hints.push_back(text);
    hints.back()[at] = static_cast<char>(text[at] ^ 4);
  }
  for (const std::string& hint : hints) {
    root.Write("latest", hint);
    const auto search = ResolveResume(*files, root.path(), "latest");
    ASSERT_TRUE(search.ok() && search->found) << hint;
    EXPECT_EQ(search->found->manifest.info.step, 20) << hint;
  }
}

}  // namespace
}  // namespace sherd
