#include "worker/checkpoint/find.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "tests/worker/checkpoint/training_world.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class FindTest : public testing::Test {
 protected:
  void Save(int64_t step, int64_t epoch = 1, const std::string& lineage = "first") {
    const absl::Status saved =
        SaveTraining(*files_, root_.path(), TrainingInfoOf(job_, step, epoch, lineage), world_);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  // "STEP/EPOCH" of what is found, "none", or the error.
  std::string Found(const absl::StatusOr<CheckpointSearch>& search) const {
    if (!search.ok()) return search.status().ToString();
    if (!search->found) return "none";
    const CheckpointInfo& info = search->found->manifest.info;
    return std::to_string(info.step) + "/" + std::to_string(info.epoch);
  }
  std::string Newest(const std::string& lineage = "",
                     const std::vector<std::string>& excluded = {}) {
    return Found(FindNewestSound(*files_, root_.path(), lineage, excluded));
  }
  std::string Resolved(const std::string& resume) {
    return Found(ResolveResume(*files_, root_.path(), resume));
  }
  void Truncate(const std::string& step) {
    std::filesystem::resize_file(root_ / step + "/shard-00001-of-00001.safetensors", 50);
  }

  const v1::JobSpec job_ = SmallJob(v1::ARCHITECTURE_GPT2, true);
  const TrainingWorld world_{
      job_, {}, WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job_.model())))), 0};
  const TemporaryDirectory root_;
  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
};

TEST_F(FindTest, TakesTheNewestByStepThenEpoch) {
  EXPECT_EQ(Newest(), "none");
  for (const auto& [step, epoch] : {std::pair(900, 2), {1000, 1}, {1000, 3}, {30, 9}}) {
    Save(step, epoch);
  }
  EXPECT_EQ(Newest(), "1000/3");
  EXPECT_EQ(Newest("", {StepDirectory(root_.path(), 1000, 3)}), "1000/1");
  EXPECT_EQ(Found(FindNewestSound(*files_, root_ / "nowhere")), "none");
}

// F44: a directory that is damaged or half there hangs and fails nothing.
TEST_F(FindTest, SkipsWhatIsDamagedAndSaysWhy) {
  Save(10);
  for (const int64_t step : {20, 30, 40}) Save(step);
  Truncate("step-00000040-epoch-1");
  std::filesystem::remove(root_ / "step-00000030-epoch-1/manifest.json");
  std::filesystem::remove(root_ / "step-00000020-epoch-1/shard-00001-of-00001.safetensors");
  std::filesystem::create_directory(root_ / "step-00000050-epoch-1");
  root_.Write("step-00000060-epoch-1", "a file");
  root_.Write("step-00000070-epoch-1/manifest.json", "{");
  // Whoever renames a directory does not make it newer.
  std::filesystem::copy(root_ / "step-00000010-epoch-1", root_ / "step-00000080-epoch-1");
  root_.Write("step-9-epoch-1/manifest.json", "not a name of ours");
  const absl::StatusOr<CheckpointSearch> search = FindNewestSound(*files_, root_.path());
  ASSERT_TRUE(search.ok()) << search.status();
  EXPECT_EQ(Found(search), "10/1");
  ASSERT_EQ(search->skipped.size(), 7u);
  const auto why = [&](size_t index) { return search->skipped[index].why.ToString(); };
  EXPECT_THAT(why(0), AllOf(HasSubstr("step-00000080-epoch-1"), HasSubstr("of step 10")));
  EXPECT_THAT(why(1), AllOf(HasSubstr("step-00000070-epoch-1"), HasSubstr("syntax")));
  EXPECT_THAT(why(2), HasSubstr("step-00000060-epoch-1"));
  EXPECT_THAT(why(3), AllOf(HasSubstr("step-00000050-epoch-1"), HasSubstr("no complete")));
  EXPECT_THAT(why(4), AllOf(HasSubstr("step-00000040-epoch-1"), HasSubstr("it has 50 of")));
  EXPECT_THAT(why(5), AllOf(HasSubstr("step-00000030-epoch-1"), HasSubstr("no complete")));
  EXPECT_THAT(why(6), AllOf(HasSubstr("step-00000020-epoch-1"), HasSubstr("missing")));
}

// A job that started anew in a directory never goes back to what another has left there.
TEST_F(FindTest, KeepsToTheLineage) {
  Save(100, 1, "first");
  Save(10, 1, "second");
  EXPECT_EQ(Newest("second"), "10/1");
  EXPECT_EQ(Newest("first"), "100/1");
  EXPECT_EQ(Newest("third"), "none");
  // Of the lineage that was saved last.
  EXPECT_EQ(Resolved("latest"), "10/1");
  Truncate("step-00000010-epoch-1");
  EXPECT_EQ(Newest("second"), "none");
  EXPECT_EQ(Resolved("latest"), "100/1");
}

// What another history left damaged is none of its business.
TEST_F(FindTest, OfALineagePassesOverOthersInSilence) {
  Save(10, 1, "own");
  Save(20, 1, "foreign");
  Save(30, 1, "foreign");
  Truncate("step-00000030-epoch-1");
  std::filesystem::remove(root_ / "step-00000020-epoch-1/manifest.json");
  const auto skipped = [&](const std::string& lineage) {
    const absl::StatusOr<CheckpointSearch> search = FindNewestSound(*files_, root_.path(), lineage);
    return search.ok() ? static_cast<int>(search->skipped.size()) : -1;
  };
  EXPECT_EQ(Newest("own"), "10/1");
  EXPECT_EQ(skipped("own"), 0);
  EXPECT_EQ(skipped("never published"), 0);
  // Of that which was published last it may be.
  EXPECT_EQ(skipped("foreign"), 2);
  Save(40, 1, "own");
  std::filesystem::remove(root_ / "step-00000040-epoch-1/manifest.json");
  EXPECT_EQ(Newest("own"), "10/1");
  EXPECT_EQ(skipped("own"), 2);
  EXPECT_EQ(skipped("foreign"), 1);
}

TEST_F(FindTest, ResolvesWhatAJobGoesOnFrom) {
  EXPECT_EQ(Resolved("none"), "none");
  EXPECT_EQ(Resolved(""), "none");
  EXPECT_EQ(Resolved("latest"), "none");
  Save(10);
  Save(20);
  EXPECT_EQ(Resolved("none"), "none");
  EXPECT_EQ(Resolved("latest"), "20/1");
  EXPECT_EQ(Resolved(root_ / "step-00000010-epoch-1"), "10/1");
  EXPECT_EQ(Resolved(root_.path()), "20/1");
  EXPECT_THAT(Resolved(root_ / "step-00000011-epoch-1"),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("step-00000011-epoch-1 does not exist")));
}

// `sherd run --out DIR` leaves the weights in DIR/weights.
TEST_F(FindTest, HintsAtTheWeightsBelowWhatARunPutOut) {
  const std::string weights = root_ / "run/weights";
  ASSERT_TRUE(SaveTraining(*files_, weights, TrainingInfoOf(job_, 10), world_).ok());
  EXPECT_THAT(Resolved(root_ / "run"), AllOf(HasSubstr("holds no complete checkpoint"),
                                             testing::EndsWith("; did you mean " + weights + "?")));
  EXPECT_THAT(Resolved(root_ / "run/logs"), testing::Not(HasSubstr("did you mean")));
  const absl::Status other = absl::DataLossError("it is damaged");
  EXPECT_EQ(HintAtWeights(*files_, root_ / "run", other), other);
  const absl::Status missing = absl::NotFoundError("a file is missing");
  EXPECT_EQ(HintAtWeights(*files_, weights, missing), missing);
  EXPECT_NE(HintAtWeights(*files_, root_ / "run", missing), missing);
}

// Of a run that saved no checkpoints there is nothing there to go on from either.
TEST_F(FindTest, SaysThatARunPutOutWeightsAlone) {
  FaultyFileSystem sound;
  const std::string weights = root_ / "run/weights";
  ASSERT_TRUE(sherd::Save(sound, FinalDirectory(weights), TinyWeights(1), 1, 5).ok());
  EXPECT_THAT(Resolved(root_ / "run"),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr(FinalDirectory(weights)),
                    HasSubstr("weights alone"), testing::Not(HasSubstr("did you mean"))));
  // What can be gone on from goes first, as in the directory itself.
  ASSERT_TRUE(SaveTraining(*files_, weights, TrainingInfoOf(job_, 10), world_).ok());
  EXPECT_THAT(Resolved(root_ / "run"), testing::EndsWith("; did you mean " + weights + "?"));
}

TEST_F(FindTest, AFileThatIsCalledAsARunsWeightsIsNotLookedInto) {
  root_.Write("run/weights", "x");
  EXPECT_THAT(Resolved(root_ / "run"), HasSubstr("run holds no complete checkpoint"));
}

// F42: to start from the beginning without a word would lose what was trained.
TEST_F(FindTest, DoesNotStartAnewWhereEverythingIsDamaged) {
  Save(10);
  Save(20);
  Truncate("step-00000010-epoch-1");
  Truncate("step-00000020-epoch-1");
  EXPECT_THAT(Resolved("latest"), AllOf(HasSubstr("DATA_LOSS"), HasSubstr("step-00000020"),
                                        HasSubstr("step-00000010")));
  EXPECT_THAT(Resolved(root_ / "step-00000010-epoch-1"), HasSubstr("DATA_LOSS"));
}

// F49: an optimizer that starts from nothing is another training.
TEST_F(FindTest, RefusesToGoOnFromWeightsAlone) {
  FaultyFileSystem sound;
  ASSERT_TRUE(sherd::Save(sound, FinalDirectory(root_.path()), TinyWeights(1), 1, 5).ok());
  for (const std::string& path : {root_.path(), root_ / "final"}) {
    EXPECT_THAT(Resolved(path), AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("/final"),
                                      HasSubstr("weights alone")));
  }
}

TEST_F(FindTest, FindsTheWeightsThatAUserMeans) {
  FaultyFileSystem sound;
  EXPECT_EQ(WeightsDirectory(*files_, root_ / "nowhere"), root_ / "nowhere");
  Save(10);
  Save(20);
  EXPECT_EQ(WeightsDirectory(*files_, root_.path()), root_ / "step-00000020-epoch-1");
  EXPECT_EQ(WeightsDirectory(*files_, root_ / "step-00000010-epoch-1"),
            root_ / "step-00000010-epoch-1");
  ASSERT_TRUE(sherd::Save(sound, FinalDirectory(root_.path()), TinyWeights(1), 1, 30).ok());
  EXPECT_EQ(WeightsDirectory(*files_, root_.path()), root_ / "final");
  EXPECT_EQ(WeightsDirectory(*files_, root_ / "final"), root_ / "final");
  // As an earlier version left them.
  ASSERT_TRUE(sherd::Save(sound, root_ / "old", TinyWeights(1), 1, 30).ok());
  EXPECT_EQ(WeightsDirectory(*files_, root_ / "old"), root_ / "old");
}

TEST(StepName, ReadsBackWhatNamesADirectoryAndNothingElse) {
  for (const auto& [step, epoch] : {std::pair<int64_t, int64_t>(0, 1), {100, 3}, {123456789, 40}}) {
    const std::string name = StepDirectory("", step, epoch).substr(1);
    const std::optional<StepName> back = ParseStepName(name);
    ASSERT_TRUE(back.has_value()) << name;
    EXPECT_EQ(back->step, step);
    EXPECT_EQ(back->epoch, epoch);
  }
  EXPECT_EQ(StepDirectory("a", 100, 3), "a/step-00000100-epoch-3");
  for (const char* name :
       {"", "step-", "step-1-epoch-1", "step-00000001-epoch-01", "step-00000001-epoch-",
        "step--0000001-epoch-1", "step-00000001-epoch--1", "step-00000001-epoch-1 ",
        "step-99999999999999999999-epoch-1", "xstep-00000001-epoch-1",
        "step-00000001-epoch-1.partial"}) {
    EXPECT_FALSE(ParseStepName(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace sherd
