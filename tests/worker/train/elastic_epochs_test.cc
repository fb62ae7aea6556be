#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/holdings.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"

namespace sherd::testing {
namespace {

constexpr int64_t kSteps = 9;

// What a job's feed would hold.
struct Curve {
  std::vector<v1::StepReport> steps;

  void Append(const std::vector<RankRecord>& records) {
    for (const v1::StepReport& step : records.front().steps) steps.push_back(step);
  }
};

void ExpectSameCurve(const Curve& curve, const Curve& undisturbed) {
  ASSERT_EQ(curve.steps.size(), undisturbed.steps.size());
  for (size_t i = 0; i < curve.steps.size(); ++i) {
    const v1::StepReport& ours = curve.steps[i];
    const v1::StepReport& theirs = undisturbed.steps[i];
    ASSERT_EQ(ours.step(), static_cast<int64_t>(i) + 1);
    EXPECT_EQ(ours.loss(), theirs.loss()) << "step " << ours.step();
    EXPECT_EQ(ours.grad_norm(), theirs.grad_norm()) << "step " << ours.step();
    EXPECT_EQ(ours.lr(), theirs.lr());
    EXPECT_EQ(ours.tokens(), theirs.tokens());
  }
}

// All that processes hold of the job.
std::vector<Holder> HoldersOf(const LocalWorkers& workers, int64_t epoch) {
  std::vector<Holder> holders;
  for (size_t i = 0; i < workers.size(); ++i) {
    holders.push_back({absl::StrCat(i), workers[i]->holdings.Seal("j-1", epoch)});
  }
  return holders;
}

class ElasticEpochs : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy, v1::DataType type = v1::DATA_TYPE_BF16,
                  int64_t tensor = 1) {
    v1::JobSpec spec = TinyJob(text_, strategy, type, 8, kSteps);
    spec.mutable_elastic()->set_replicas(1);
    spec.mutable_parallel()->set_tensor(tensor);
    return spec;
  }

  Curve Undisturbed(const v1::JobSpec& spec, int world) {
    LocalWorld undisturbed(spec, world);
    Curve curve;
    const std::vector<RankRecord> records = undisturbed.Run();
    for (const RankRecord& record : records) {
      EXPECT_TRUE(record.result.status.ok()) << record.result.status;
    }
    curve.Append(records);
    return curve;
  }

  // Trains until `step` is committed, loses `dead` (its process and what only that held), and goes
  // on over `next` ranks; the whole curve.
  Curve Interrupted(const v1::JobSpec& spec, int world, int64_t step, int dead, int next) {
    Curve curve;
    LocalWorkers workers;
    {
      LocalWorld first(spec, world);
      first.Start();
      first.WaitForStep(0, step);
      for (int rank = 0; rank < world; ++rank) first.trainer(rank).Abort("a test");
      curve.Append(first.Join());
      workers = first.workers();
    }
    workers.erase(workers.begin() + dead);
    const std::vector<Holder> holders = HoldersOf(workers, 1);
    const std::optional<Version> version = ChooseVersion(spec, 0, holders);
    EXPECT_TRUE(version.has_value());
    if (!version.has_value()) return curve;
    EXPECT_GE(version->step, static_cast<int64_t>(curve.steps.size()));
    LocalEpoch epoch{.epoch = 2, .restore = *version, .holders = workers};
    epoch.reported_step = static_cast<int64_t>(curve.steps.size());
    epoch.workers = workers;
    while (static_cast<int>(epoch.workers.size()) < next) {
      epoch.workers.insert(epoch.workers.begin() + dead, std::make_shared<LocalWorker>());
    }
    epoch.workers.resize(static_cast<size_t>(next));
    LocalWorld second(spec, next, std::move(epoch));
    const std::vector<RankRecord> records = second.Run();
    for (const RankRecord& record : records) {
      EXPECT_TRUE(record.result.status.ok()) << record.result.status;
      EXPECT_EQ(record.copies, next > 1 ? 1 : 0);
    }
    curve.Append(records);
    return curve;
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", MakeText(4000, 3));
};

// F21, F48, F49: whoever dies, and whatever takes its place, the curve is that of the undisturbed
// run bit for bit, without a step missing or doubled.
TEST_F(ElasticEpochs, ASpareTakesADeadRanksPlaceAndTheCurveDoesNotShowIt) {
  for (const absl::string_view strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    for (const v1::DataType type : {v1::DATA_TYPE_BF16, v1::DATA_TYPE_FP32}) {
      SCOPED_TRACE(absl::StrCat(strategy, " ", type));
      const v1::JobSpec spec = Job(strategy, type);
      const Curve undisturbed = Undisturbed(spec, 4);
      for (const int dead : {0, 2}) {
        ExpectSameCurve(Interrupted(spec, 4, 3 + dead, dead, 4), undisturbed);
      }
    }
  }
}

TEST_F(ElasticEpochs, TensorParallelAndHybridJobsGoOnToo) {
  const v1::JobSpec tensor = Job("zero3", v1::DATA_TYPE_BF16, 2);
  ExpectSameCurve(Interrupted(tensor, 4, 4, 1, 4), Undisturbed(tensor, 4));
  const v1::JobSpec hybrid = Job("hybrid 2");
  ExpectSameCurve(Interrupted(hybrid, 4, 4, 3, 4), Undisturbed(hybrid, 4));
}

// Without a spare the world shrinks; the sums of zero2 and zero3 have the same bits at any world.
TEST_F(ElasticEpochs, AWorldShrinksAndTheCurveDoesNotShowIt) {
  for (const absl::string_view strategy : {"zero2", "zero3"}) {
    SCOPED_TRACE(strategy);
    const v1::JobSpec spec = Job(strategy);
    const Curve undisturbed = Undisturbed(spec, 4);
    for (const int next : {3, 2, 1}) {
      ExpectSameCurve(Interrupted(spec, 4, 4, 1, next), undisturbed);
    }
  }
  const v1::JobSpec ddp = Job("ddp");
  ExpectSameCurve(Interrupted(ddp, 4, 4, 1, 2), Undisturbed(ddp, 4));
}

TEST_F(ElasticEpochs, AWorldGrowsAndTheCurveDoesNotShowIt) {
  const v1::JobSpec spec = Job("zero3");
  ExpectSameCurve(Interrupted(spec, 3, 4, 0, 5), Undisturbed(spec, 3));
}

// F52: what the reporter of steps may not have told when it dies at the end every other rank knows.
TEST_F(ElasticEpochs, EveryRankEndsWithTheLastSteps) {
  for (const int64_t replicas : {0, 1}) {
    v1::JobSpec spec = Job("zero3");
    spec.mutable_elastic()->set_replicas(replicas);
    const std::vector<RankRecord> records = LocalWorld(spec, 3).Run();
    ASSERT_EQ(records[0].steps.size(), static_cast<size_t>(kSteps));
    for (const RankRecord& record : records) {
      ExpectSameCurve({record.result.last_steps}, {records[0].steps});
    }
  }
}

TEST_F(ElasticEpochs, TheLastStepsAreThoseThatAreNotKnownToBeTold) {
  const v1::JobSpec spec = Job("zero3");
  LocalWorld first(spec, 2);
  first.Start();
  first.WaitForStep(0, 3);
  first.trainer(0).Pause();
  const int64_t step = first.Join()[0].result.step;
  LocalEpoch epoch{.epoch = 2, .restore = {1, 2, step}, .holders = first.workers()};
  epoch.workers = first.workers();
  epoch.reported_step = step - 1;
  const std::vector<RankRecord> records = LocalWorld(spec, 2, std::move(epoch)).Run();
  for (const RankRecord& record : records) {
    ASSERT_EQ(static_cast<int64_t>(record.result.last_steps.size()), kSteps - step + 1);
    for (size_t i = 0; i < record.result.last_steps.size(); ++i) {
      const v1::StepReport& last = record.result.last_steps[i];
      EXPECT_EQ(last.step(), records[0].steps[i].step());
      EXPECT_EQ(last.loss(), records[0].steps[i].loss());
      EXPECT_EQ(last.epoch(), 2);
    }
  }
}

// A pause ends all ranks after the same step, which all have stored.
TEST_F(ElasticEpochs, AllRanksPauseAfterTheSameStep) {
  const v1::JobSpec spec = Job("zero3");
  LocalWorld world(spec, 3);
  world.Start();
  world.WaitForStep(0, 2);
  world.trainer(1).Pause();
  const std::vector<RankRecord> records = world.Join();
  const int64_t step = records[0].result.step;
  EXPECT_GE(step, 2);
  EXPECT_LT(step, kSteps);
  EXPECT_EQ(static_cast<int64_t>(records[0].steps.size()), step);
  for (const RankRecord& record : records) {
    EXPECT_TRUE(record.result.status.ok()) << record.result.status;
    EXPECT_TRUE(record.result.paused);
    EXPECT_EQ(record.result.step, step);
  }
  const std::optional<Version> version = ChooseVersion(spec, 0, HoldersOf(world.workers(), 1));
  ASSERT_TRUE(version.has_value());
  EXPECT_EQ(version->step, step);
}

// F46: bytes that have changed since they were stored are not restored, nor held any more.
TEST_F(ElasticEpochs, DamagedBytesAreNotRestored) {
  const v1::JobSpec spec = Job("zero3");
  LocalWorld first(spec, 2);
  first.Start();
  first.WaitForStep(0, 3);
  for (int rank = 0; rank < 2; ++rank) first.trainer(rank).Pause();
  const int64_t step = first.Join()[0].result.step;
  const HoldingKey key{"j-1", 1, 2, 1};
  const std::shared_ptr<HoldingSegment> segment = first.workers()[1]->holdings.Find(key);
  const int slot = segment->FindStep(step);
  ASSERT_GE(slot, 0);
  segment->slot(slot)[segment->slot_bytes() / 2] ^= std::byte{1};

  LocalEpoch epoch{.epoch = 2, .restore = {1, 2, step}, .holders = first.workers()};
  epoch.workers = first.workers();
  LocalWorld second(spec, 2, std::move(epoch));
  const std::vector<RankRecord> records = second.Run();
  EXPECT_EQ(records[1].result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(records[1].result.final);
  EXPECT_FALSE(records[1].ready);
  EXPECT_EQ(segment->FindStep(step), -1);
}

}  // namespace
}  // namespace sherd::testing
