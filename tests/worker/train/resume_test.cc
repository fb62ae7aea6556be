// Training that goes on from a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/worker/train/checkpoint_jobs.h"
#include "tests/worker/train/outcome.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/save.h"
#include "worker/train/lineage.h"

namespace sherd::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kSteps = 10;
constexpr int64_t kSaved = 5;

class Resuming : public CheckpointJobs {
 protected:
  std::string Saved(int64_t step, int64_t epoch = 1) const {
    return StepDirectory(root_, step, epoch);
  }

  // Flips a byte in the middle of a rank's file, which no size shows.
  static void Damage(const std::string& directory) {
    const std::string path = directory + "/shard-00001-of-00002.safetensors";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(path) / 2);
    file.seekg(middle);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(middle);
    file.put(byte);
    ASSERT_TRUE(file.good());
  }

  // Saves of steps 2 and 4 of one history, by two ranks.
  void SaveTwice() {
    Run(Job("zero3", 2, 2), 2);
    Run(Job("zero3", 4, 4, "latest"), 2);
    ASSERT_THAT(Steps(), ElementsAre(4, 2));
  }
};

// The steps after `first` of both.
void ExpectSameSteps(const std::vector<v1::StepReport>& ours,
                     const std::vector<v1::StepReport>& undisturbed, int64_t first,
                     double tolerance) {
  ASSERT_EQ(static_cast<int64_t>(ours.size()) + first, static_cast<int64_t>(undisturbed.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    const v1::StepReport& theirs = undisturbed[i + static_cast<size_t>(first)];
    ASSERT_EQ(ours[i].step(), theirs.step());
    EXPECT_EQ(ours[i].lr(), theirs.lr());
    EXPECT_NEAR(ours[i].loss(), theirs.loss(), tolerance * theirs.loss()) << ours[i].step();
    EXPECT_NEAR(ours[i].grad_norm(), theirs.grad_norm(), tolerance * theirs.grad_norm())
        << ours[i].step();
  }
}

// F43, F48, F49: moments, samples and the learning rate are those of the run that was not
// interrupted, whatever layout goes on.
TEST_F(Resuming, AnyLayoutGoesOnAsIfNothingHadHappened) {
  struct Layout {
    const char* strategy;
    int world;
    int64_t tensor = 1;
  };
  struct Case {
    Layout saved, resumed;
    bool same_bits;
  };
  for (const Case& each : {
           Case{{"zero2", 4}, {"zero3", 3}, true},
           Case{{"zero3", 4}, {"zero2", 2}, true},
           Case{{"zero3", 2}, {"zero3", 1}, true},
           Case{{"ddp", 2}, {"ddp", 2}, true},
           Case{{"zero1", 4}, {"zero1", 4}, true},
           Case{{"hybrid 2", 4}, {"hybrid 2", 4}, true},
           Case{{"zero3", 4, 2}, {"zero3", 4, 2}, true},
           Case{{"ddp", 3}, {"zero3", 4}, false},
           Case{{"zero3", 4, 2}, {"zero2", 3}, false},
           Case{{"hybrid 2", 4}, {"ddp", 4, 2}, false},
       }) {
    SCOPED_TRACE(absl::StrCat(each.saved.strategy, " × ", each.saved.world, " goes on as ",
                              each.resumed.strategy, " × ", each.resumed.world));
    std::filesystem::remove_all(root_);
    const auto whole =
        Run(Job(each.saved.strategy, kSteps, kSaved, "none", each.saved.tensor), each.saved.world);
    const auto weights = ReadWeights(FinalDirectory(root_));
    const auto rest = Run(Job(each.resumed.strategy, kSteps, 0, Saved(kSaved), each.resumed.tensor),
                          each.resumed.world);
    ExpectSameSteps(rest[0].steps, whole[0].steps, kSaved, each.same_bits ? 0 : 1e-5);
    if (each.same_bits) {
      EXPECT_EQ(ReadWeights(FinalDirectory(root_)), weights);
    }
    for (const RankRecord& rank : rest) EXPECT_EQ(rank.result.step, kSteps);
  }
}

// Stored parameters in bf16 are made from the masters.
TEST_F(Resuming, GoesOnInMixedPrecisionBitForBit) {
  for (const char* const strategy : {"ddp", "zero1", "zero3"}) {
    std::filesystem::remove_all(root_);
    v1::JobSpec spec = Job(strategy, kSteps, kSaved);
    spec.mutable_precision()->set_compute(v1::DATA_TYPE_BF16);
    spec.mutable_precision()->set_grad(v1::DATA_TYPE_BF16);
    const auto whole = Run(spec, 2);
    spec.mutable_checkpoint()->set_resume(Saved(kSaved));
    ExpectSameSteps(Run(spec, 2)[0].steps, whole[0].steps, kSaved, 0);
  }
}

TEST_F(Resuming, LatestStartsFromTheBeginningWhereNothingIsAndSaysSo) {
  const auto records = Run(Job("zero3", 2, 2, "latest"), 2);
  EXPECT_THAT(records[0].steps, SizeIs(2));
  EXPECT_THAT(records[0].log, Contains(HasSubstr("training starts from the beginning")));
}

TEST_F(Resuming, SaysWhenNothingIsLeftToTrain) {
  Run(Job("zero3", 2, 2), 2);
  const auto records = Run(Job("zero3", 2, 0, "latest"), 2);
  EXPECT_THAT(records[0].steps, IsEmpty());
  EXPECT_THAT(records[0].log, Contains(HasSubstr("train.steps must be above 2 to train on")));
  const auto more = Run(Job("zero3", 3, 0, "latest"), 2);
  EXPECT_THAT(more[0].steps, SizeIs(1));
  EXPECT_THAT(more[0].log, Not(Contains(HasSubstr("nothing is left"))));
}

// F46: its sizes are right; only reading it tells.
TEST_F(Resuming, PassesOverADamagedCheckpointAndSaysSo) {
  SaveTwice();
  Damage(Saved(4));
  const auto records = Run(Job("zero3", 6, 0, "latest"), 3);
  ASSERT_FALSE(records[0].steps.empty());
  EXPECT_EQ(records[0].steps.front().step(), 3);
  ASSERT_THAT(records[0].warnings, SizeIs(1));
  EXPECT_EQ(records[0].warnings[0].kind(), "checkpoint");
  EXPECT_THAT(records[0].warnings[0].text(), HasSubstr(Saved(4)));
}

TEST_F(Resuming, ADamagedCheckpointThatWasNamedIsNotReplacedByAnother) {
  SaveTwice();
  Damage(Saved(4));
  LocalWorld job(Job("zero3", 6, 0, Saved(4)), 2);
  const auto records = job.Run();
  EXPECT_TRUE(absl::IsDataLoss(records[0].result.status)) << records[0].result.status;
  EXPECT_TRUE(records[0].result.final);
  EXPECT_THAT(records[1].steps, IsEmpty());
}

TEST_F(Resuming, NeverStartsAnewWhenAllAreDamaged) {
  SaveTwice();
  Damage(Saved(4));
  Damage(Saved(2));
  LocalWorld job(Job("zero3", 6, 0, "latest"), 2);
  const auto records = job.Run();
  EXPECT_TRUE(absl::IsDataLoss(records[0].result.status)) << records[0].result.status;
  EXPECT_TRUE(records[0].result.final);
  EXPECT_FALSE(records[0].ready);
}

// F48: other samples would follow without a word.
TEST_F(Resuming, RefusesACheckpointOfAnotherJob) {
  SaveTwice();
  v1::JobSpec spec = Job("zero3", 6, 0, "latest");
  spec.mutable_train()->set_seed(12);
  LocalWorld job(spec, 2);
  const auto records = job.Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(records[0].result.status)) << records[0].result.status;
  EXPECT_THAT(std::string(records[0].result.status.message()), HasSubstr("train.seed"));
  EXPECT_TRUE(records[0].result.final);
}

// What the coordinator plans when all that was held in memory is lost.
TEST_F(Resuming, FallsBackToThePlannedCheckpointOrTheOneBeforeItInItsHistory) {
  SaveTwice();
  LocalEpoch fallback{.epoch = 2, .restore = {0, 0, 4}, .reported_step = 4};
  fallback.checkpoint = Saved(4);
  const auto planned = Run(Job("zero3", 6, 0), 3, fallback);
  EXPECT_THAT(planned[0].steps, SizeIs(2));
  EXPECT_EQ(planned[0].ready_step, 4);
  Damage(Saved(4));
  const auto older = Run(Job("zero3", 6, 0), 3, fallback);
  EXPECT_THAT(older[0].warnings, SizeIs(1));
  EXPECT_THAT(older[0].log, Contains(HasSubstr("goes on after step 2")));
  // What was told of steps 3 and 4 is taken back when the ranks say so.
  for (const RankRecord& rank : older) EXPECT_EQ(rank.ready_step, 2);
  ASSERT_THAT(older[0].steps, SizeIs(4));
  EXPECT_EQ(older[0].steps[0].step(), 3);

  std::filesystem::remove_all(root_);
  LocalWorld lost(Job("zero3", 6, 0), 2, fallback);
  const auto records = lost.Run();
  EXPECT_TRUE(records[0].result.final) << records[0].result.status;
  EXPECT_THAT(records[0].steps, IsEmpty());
}

// It was saved while the coordinator was away. With `keep: 1` the planned one went for it.
TEST_F(Resuming, TakesANewerCheckpointOfItsHistoryThanWasPlanned) {
  SaveTwice();
  LocalEpoch fallback{.epoch = 2, .restore = {0, 0, 2}, .reported_step = 3};
  fallback.checkpoint = Saved(2);
  const auto newer = Run(Job("zero3", 6, 0), 3, fallback);
  for (const RankRecord& rank : newer) EXPECT_EQ(rank.ready_step, 4);
  ASSERT_THAT(newer[0].steps, SizeIs(2));
  EXPECT_EQ(newer[0].steps[0].step(), 5);

  std::filesystem::remove_all(Saved(2));
  const auto alone = Run(Job("zero3", 6, 0), 2, fallback);
  EXPECT_EQ(alone[0].ready_step, 4);
  EXPECT_THAT(alone[0].warnings, IsEmpty());
}

TEST_F(Resuming, ALaterEpochThatWasToBeginAtTheStartTakesWhatItsJobHadSaved) {
  SaveTwice();
  const LocalEpoch second{.epoch = 2, .reported_step = 5};
  // Nothing says that they are of this job, and not of one before it that had its name.
  const auto anew = Run(Job("zero3", 6, 0), 2, second);
  EXPECT_EQ(anew[0].ready_step, 0);
  ASSERT_THAT(anew[0].steps, SizeIs(6));

  const absl::StatusOr<Manifest> manifest = ReadManifest(Saved(4));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_TRUE(
      RememberLineage(*files_, root_, manifest->info.job_id, manifest->info.training->lineage)
          .ok());
  const auto own = Run(Job("zero3", 6, 0), 2, second);
  EXPECT_EQ(own[0].ready_step, 4);
  ASSERT_THAT(own[0].steps, SizeIs(2));
  EXPECT_EQ(own[0].steps[0].step(), 5);
}

// What a job before it left damaged in the same directory decides nothing for one that has not
// published yet.
TEST_F(Resuming, DamageOfAnotherHistoryIsNotItsOwn) {
  SaveTwice();
  std::filesystem::remove(Saved(4) + "/manifest.json");
  std::filesystem::resize_file(Saved(2) + "/shard-00001-of-00002.safetensors", 50);
  ASSERT_TRUE(RememberLineage(*files_, root_, "j-1", "its own").ok());
  const LocalEpoch second{.epoch = 2, .reported_step = 5};
  const auto anew = Run(Job("zero3", 6, 0), 2, second);
  EXPECT_EQ(anew[0].ready_step, 0);
  EXPECT_THAT(anew[0].warnings, IsEmpty());

  // One that was to go on from them is told.
  LocalWorld named(Job("zero3", 6, 0, "latest"), 2, second);
  EXPECT_TRUE(absl::IsDataLoss(named.Run()[0].result.status));
}

// When the last workers of a job are drained.
TEST_F(Resuming, SavesAndStopsAndGoesOn) {
  const auto whole = Run(Job("zero3", kSteps, 0), 2);
  const v1::JobSpec spec = Job("zero3", kSteps, 0, "latest");
  LocalWorld first(spec, 2);
  first.Start();
  first.WaitForStep(0, 3);
  first.trainer(0).Pause();
  const int64_t step = first.Join()[0].result.step;

  LocalEpoch saving{.epoch = 2, .workers = first.workers(), .restore = {1, 2, step}};
  saving.holders = first.workers();
  saving.save_and_stop = true;
  // The reporter died before it had sent the last one.
  saving.reported_step = step - 1;
  const auto saved = Run(spec, 2, std::move(saving));
  for (const RankRecord& rank : saved) {
    EXPECT_TRUE(rank.result.paused);
    EXPECT_EQ(rank.result.step, step);
    EXPECT_TRUE(rank.ready);
  }
  ASSERT_THAT(saved[0].steps, SizeIs(1));
  EXPECT_EQ(saved[0].steps[0].step(), step);
  EXPECT_EQ(saved[0].steps[0].loss(), whole[0].steps[static_cast<size_t>(step) - 1].loss());
  ASSERT_THAT(saved[0].checkpoints, SizeIs(1));
  EXPECT_EQ(saved[0].checkpoints[0].error(), "");
  EXPECT_EQ(saved[0].checkpoints[0].path(), Saved(step, 2));

  LocalEpoch third{.epoch = 3, .restore = {0, 0, step}, .reported_step = step};
  third.checkpoint = Saved(step, 2);
  const auto rest = Run(spec, 4, std::move(third));
  ExpectSameSteps(rest[0].steps, whole[0].steps, step, 0);
}

// F43: the loss and the windows that were skipped belong to a version, also before a step of its
// epoch has a report.
TEST_F(Resuming, AVersionHasItsFiguresBeforeItsFirstStep) {
  Run(Job("zero3", 3, 3), 2);
  const double loss = ReadManifest(Saved(3))->info.training->loss;
  const v1::JobSpec spec = Job("zero3", kSteps, 0, "latest");
  const LocalWorkers workers = MakeWorkers(2);
  const auto restore = [&](int64_t epoch, const Version& version, const std::string& checkpoint) {
    LocalEpoch next{.epoch = epoch, .workers = workers, .restore = version, .holders = workers};
    next.checkpoint = checkpoint;
    next.save_and_stop = true;
    Run(spec, 2, std::move(next));
  };
  const auto segment = [&](int64_t epoch, int rank) {
    return workers[static_cast<size_t>(rank)]->holdings.Find({"j-1", epoch, 2, rank});
  };
  restore(2, {0, 0, 3}, Saved(3));
  EXPECT_EQ(segment(2, 1)->Figures(0).loss, loss);
  EXPECT_EQ(segment(2, 1)->Figures(0).skipped_windows, 0);
  for (int rank = 0; rank < 2; ++rank) {
    segment(2, rank)->Complete(0, 3, segment(2, rank)->Checksum(0), {2, loss});
  }
  restore(3, {2, 2, 3}, "");
  EXPECT_EQ(segment(3, 1)->Figures(0).skipped_windows, 2);
  const absl::StatusOr<Manifest> saved = ReadManifest(Saved(3, 3));
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->info.training->skipped_windows, 2);
  EXPECT_EQ(saved->info.training->loss, loss);
  restore(4, {0, 0, 3}, Saved(3, 3));
  EXPECT_EQ(segment(4, 0)->Figures(0).skipped_windows, 2);
}

}  // namespace
}  // namespace sherd::testing
