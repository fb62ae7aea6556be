// An epoch may be laid out otherwise than the one whose version it goes on from.

#include <gtest/gtest.h>

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

constexpr int64_t kSteps = 7;

class RelaidEpochs : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy) {
    v1::JobSpec spec = TinyJob(text_, strategy, v1::DATA_TYPE_BF16, 8, kSteps);
    spec.mutable_elastic()->set_replicas(1);
    return spec;
  }

  std::vector<double> Losses(const std::vector<RankRecord>& records) {
    std::vector<double> losses;
    for (const RankRecord& record : records) {
      EXPECT_TRUE(record.result.status.ok()) << record.result.status;
    }
    for (const v1::StepReport& step : records.front().steps) losses.push_back(step.loss());
    return losses;
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", MakeText(4000, 3));
};

// F41, F48, F49: bit for bit, whole state or shards of it, in whichever direction.
TEST_F(RelaidEpochs, EveryLayoutGoesOnFromEveryOther) {
  const std::vector<double> undisturbed = Losses(LocalWorld(Job("zero3"), 2).Run());
  ASSERT_EQ(std::ssize(undisturbed), kSteps);
  for (const absl::string_view before : {"ddp", "zero2", "hybrid 2"}) {
    for (const absl::string_view after : {"ddp", "zero1", "zero3", "hybrid 2"}) {
      SCOPED_TRACE(absl::StrCat(before, " to ", after));
      const v1::JobSpec first_spec = Job(before);
      std::vector<double> losses;
      LocalWorkers workers;
      {
        LocalWorld first(first_spec, 4);
        first.Start();
        first.WaitForStep(0, 3);
        for (int rank = 0; rank < 4; ++rank) first.trainer(rank).Abort("a test");
        for (const RankRecord& record : first.Join()) {
          if (!losses.empty()) break;
          for (const v1::StepReport& step : record.steps) losses.push_back(step.loss());
        }
        workers = first.workers();
      }
      std::vector<Holder> holders;
      for (size_t i = 0; i < workers.size(); ++i) {
        holders.push_back({absl::StrCat(i), workers[i]->holdings.Seal("j-1", 1)});
      }
      const std::optional<Version> version = ChooseVersion(first_spec, 0, holders);
      ASSERT_TRUE(version);
      LocalEpoch epoch{.epoch = 2, .restore = *version, .holders = workers};
      epoch.reported_step = static_cast<int64_t>(losses.size());
      epoch.restore_layout = first_spec.parallel();
      epoch.workers = {workers[0], workers[2]};
      for (const double loss : Losses(LocalWorld(Job(after), 2, std::move(epoch)).Run())) {
        losses.push_back(loss);
      }
      EXPECT_EQ(losses, undisturbed);
    }
  }
}

}  // namespace
}  // namespace sherd::testing
