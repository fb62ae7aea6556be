#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "prometheus/text_serializer.h"
#include "tests/support/jobs.h"
#include "tests/support/separate_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "worker/train/device_memory.h"

namespace sherd {
namespace {

using testing::ExpectExactLedgers;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::RankRecord;

// F10, F16, F17: what was predicted is what was allocated and sent, to the byte, on every rank,
// also where sizes and micro-batches do not divide.
TEST(RankLedger, PredictsMemoryAndWireToTheByte) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int64_t rounds : {1, 3}) {
      for (const int world : {1, 2, 3, 4}) {
        for (const absl::string_view strategy : testing::StrategiesOf(world)) {
          // The last round is not full where more than one rank could have one, and replicas have
          // different numbers of micro-batches.
          const int64_t micro_batches = std::max<int64_t>(1, rounds * world - (world > 2 ? 1 : 0));
          v1::JobSpec spec = testing::TinyJob(text, strategy, type, micro_batches, 2);
          spec.mutable_parallel()->set_bucket_mb(rounds == 1 ? 25 : 0);
          spec.mutable_model()->set_tie_embeddings(rounds == 1);
          // Stored and summed in different types where there are several rounds.
          if (rounds > 1) {
            spec.mutable_precision()->set_grad(type == v1::DATA_TYPE_FP32 ? v1::DATA_TYPE_BF16
                                                                          : v1::DATA_TYPE_FP32);
          }
          const std::string what = absl::StrCat(strategy, " ", micro_batches, " over ", world);
          ExpectExactLedgers(LocalWorld(spec, world).Run(), what);
        }
      }
    }
  }
}

// What members of a group over TCP hold and send, too: the same bytes on the wire, and other memory
// beside the arena.
TEST(RankLedger, PredictsMemoryAndWireOverTcpToTheByte) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  const std::set<v1::GroupKind> all = {v1::GROUP_KIND_DATA, v1::GROUP_KIND_SHARD,
                                       v1::GROUP_KIND_REPLICA};
  for (const int world : {2, 3, 4}) {
    for (const absl::string_view strategy : testing::StrategiesOf(world)) {
      const v1::JobSpec spec =
          testing::TinyJob(text, strategy, v1::DATA_TYPE_BF16, 3 * world - 1, 2);
      const std::string what = absl::StrCat(strategy, " over ", world);
      const std::vector<RankRecord> shm = LocalWorld(spec, world).Run();
      for (const std::set<v1::GroupKind>& over_tcp : {all, {v1::GROUP_KIND_REPLICA}}) {
        const std::vector<RankRecord> tcp = LocalWorld(spec, world, 1, over_tcp).Run();
        ExpectExactLedgers(tcp, what);
        for (size_t rank = 0; rank < tcp.size(); ++rank) {
          EXPECT_EQ(tcp[rank].ledgers.back().wire().at("total").bytes().measured(),
                    shm[rank].ledgers.back().wire().at("total").bytes().measured())
              << what;
        }
      }
    }
  }
}

// The same for both architectures, with and without recomputation, which saves activations and
// moves not a byte more.
TEST(RankLedger, PredictsRecomputationToTheByte) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  for (const absl::string_view strategy : testing::kStrategies) {
    for (const int world : {1, 2, 3}) {
      for (const bool llama : {false, true}) {
        v1::JobSpec spec = testing::TinyJob(text, strategy, v1::DATA_TYPE_BF16, 2 * world, 1);
        if (llama) testing::MakeLlama(spec);
        const std::vector<RankRecord> kept = LocalWorld(spec, world).Run();
        spec.mutable_parallel()->set_recompute(v1::RECOMPUTE_BLOCK);
        const std::vector<RankRecord> recomputed = LocalWorld(spec, world).Run();
        const std::string what =
            absl::StrCat(strategy, " over ", world, llama ? " of a llama" : "");
        ExpectExactLedgers(kept, what);
        ExpectExactLedgers(recomputed, what + " recomputed");
        for (size_t rank = 0; rank < kept.size(); ++rank) {
          const v1::RankLedger& before = kept[rank].ledgers.back();
          const v1::RankLedger& after = recomputed[rank].ledgers.back();
          EXPECT_LT(after.memory().at("activations").measured(),
                    before.memory().at("activations").measured());
          EXPECT_EQ(after.wire().at("total").bytes().measured(),
                    before.wire().at("total").bytes().measured());
        }
      }
    }
  }
}

// A job of two steps whose tensors are most of what its process grows by.
v1::JobSpec LargeEnoughToMeasure(const TemporaryDirectory& scratch, absl::string_view strategy,
                                 v1::DataType type) {
  const std::string text = scratch.Write("train.txt", testing::MakeText(20000, 3));
  v1::JobSpec spec = testing::TinyJob(text, strategy, type, 1, 2);
  spec.mutable_model()->set_hidden(512);
  spec.mutable_model()->set_ffn(2048);
  return spec;
}

// F16: what a job before it left in the process is not taken for this one's, nor hides its own.
TEST(RankLedger, TellsTheSameProcessGrowthOfJobAfterJob) {
  TemporaryDirectory scratch;
  const v1::JobSpec spec = LargeEnoughToMeasure(scratch, "ddp", v1::DATA_TYPE_BF16);
  double first = 0;
  for (int job = 0; job < 3; ++job) {
    const std::vector<RankRecord> ranks = LocalWorld(spec, 1, /*threads=*/2).Run();
    ASSERT_TRUE(ranks[0].result.status.ok()) << ranks[0].result.status;
    const v1::RankLedger& ledger = ranks[0].ledgers.front();
    const double bytes = static_cast<double>(ledger.process_bytes());
    const double peak = static_cast<double>(ledger.memory().at("peak").predicted());
    // Kernels compiled at run time are a larger part of so small a job than of real ones.
    EXPECT_NEAR(bytes / peak, 1.0, 0.1) << "job " << job;
    if (job == 0) first = bytes;
    // Kernels are compiled in the first alone.
    EXPECT_NEAR(bytes / first, 1.0, 0.05) << "job " << job;
  }
}

// The arenas of a device are none of the process's memory. Here all of the device's is, which is no
// part of what is predicted.
TEST(RankLedger, TellsTheSameProcessGrowthOnADevice) {
  TemporaryDirectory scratch;
  // With versions: a home of the state that nothing has been saved from is not resident yet.
  const v1::JobSpec spec = LargeEnoughToMeasure(scratch, "zero1", v1::DATA_TYPE_FP32);
  const RankPlan plan = BuildRankPlan(spec, 0, 1);
  testing::LocalEpoch epoch;
  SeparateDevice device;
  epoch.threads = 2;
  epoch.accelerators = {&device};
  const std::vector<RankRecord> ranks = LocalWorld(spec, 1, std::move(epoch)).Run();
  ASSERT_TRUE(ranks[0].result.status.ok()) << ranks[0].result.status;
  const v1::RankLedger& ledger = ranks[0].ledgers.front();
  const int64_t device_bytes =
      device.most_used_bytes() - ArenaBytes(plan) + ledger.memory().at("scratch").measured();
  const int64_t host_bytes = ledger.host_memory().at("peak").predicted();
  EXPECT_NEAR(
      static_cast<double>(ledger.process_bytes()) / static_cast<double>(device_bytes + host_bytes),
      1.0, 0.1);
}

// F15: a loss that is no number ends the job with a reason, at once and on every rank.
TEST(Trainer, StopsWhenTheLossDiverges) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_FP32, 4, 400);
  spec.mutable_train()->mutable_optimizer()->set_lr(1e30);
  spec.mutable_train()->mutable_schedule()->set_warmup(0);
  spec.mutable_train()->mutable_schedule()->set_min_lr(1e29);
  for (const RankRecord& rank : LocalWorld(spec, 2).Run()) {
    EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kDataLoss) << rank.result.status;
    EXPECT_THAT(std::string(rank.result.status.message()), HasSubstr("diverged"));
    EXPECT_LT(rank.result.step, 400);
  }
}

// Or the samples that made it so are skipped, a few times, and users hear of it.
TEST(Trainer, SkipsTheSamplesThatMadeTheLossNoNumber) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_FP32, 4, 400);
  spec.mutable_train()->mutable_optimizer()->set_lr(1e30);
  spec.mutable_train()->mutable_schedule()->set_warmup(0);
  spec.mutable_train()->mutable_schedule()->set_min_lr(1e29);
  spec.mutable_elastic()->set_on_nan(v1::ON_NAN_ROLLBACK);
  spec.mutable_elastic()->set_max_rollbacks(2);
  const std::vector<RankRecord> ranks = LocalWorld(spec, 2).Run();
  for (const RankRecord& rank : ranks) {
    EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kDataLoss) << rank.result.status;
    EXPECT_TRUE(rank.result.final);
  }
  std::vector<std::string> said;
  for (const v1::Warning& warning : ranks[0].warnings) {
    if (absl::StrContains(warning.text(), "are skipped")) said.push_back(warning.text());
  }
  ASSERT_EQ(said.size(), 2u);
  EXPECT_THAT(said[1], HasSubstr("for the 2. of 2 times"));
  EXPECT_TRUE(ranks[1].warnings.empty());
}

TEST(Trainer, NamesAFileThatIsNotThere) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  v1::JobSpec spec = testing::TinyJob(text, "ddp", v1::DATA_TYPE_FP32, 4, 4);
  std::filesystem::remove(text);
  const std::vector<RankRecord> ranks = LocalWorld(spec, 1).Run();
  EXPECT_EQ(ranks[0].result.status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ranks[0].result.status.message()), HasSubstr("train.txt"));
}

// A file that is cut short during the run is an error with its name, not a crash; the rank that did
// not read it learns that its peer has left.
TEST(Trainer, NamesAFileThatIsCutShortDuringTheRun) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  const v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_FP32, 4, 1000000);
  LocalWorld world(spec, 2);
  world.Start();
  world.WaitForStep(0, 2);
  std::filesystem::resize_file(text, 10);
  bool named = false;
  for (const RankRecord& rank : world.Join()) {
    EXPECT_FALSE(rank.result.status.ok());
    named =
        named || std::string(rank.result.status.message()).find("train.txt") != std::string::npos;
  }
  EXPECT_TRUE(named);
}

// Who could not form a group says for whom, by its rank in the world, whichever group it was.
TEST(Trainer, NamesTheRankThatAGroupWasNotFormedFor) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_FP32, 4, 4);
  spec.mutable_parallel()->set_tensor(2);
  LocalWorld world(spec, 4);
  // Member 0 of the group of ranks 1 and 3.
  world.trainer(1).Abort("told to go");
  world.Start();
  world.WaitForStep(3, std::numeric_limits<int64_t>::max());  // to its end
  world.trainer(0).Abort("the test is over");
  world.trainer(2).Abort("the test is over");
  const std::vector<RankRecord> ranks = world.Join();
  EXPECT_EQ(ranks[3].result.lost_peer, 1) << ranks[3].result.status;
  EXPECT_EQ(ranks[1].result.lost_peer, -1);
}

// F22, F29: an abort from another thread ends every rank soon, wherever it is.
TEST(Trainer, EndsSoonAfterAnAbort) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  int trial = 0;
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    std::set<v1::GroupKind> over_tcp;
    if (++trial % 2 == 0) over_tcp = {v1::GROUP_KIND_DATA, v1::GROUP_KIND_REPLICA};
    LocalWorld world(testing::TinyJob(text, strategy, v1::DATA_TYPE_FP32, 4, 1000000), 4, 1,
                     over_tcp);
    world.Start();
    world.WaitForStep(0, 3);
    const absl::Time start = absl::Now();
    for (int rank = 0; rank < 4; ++rank) world.trainer(rank).Abort("cancelled by the user");
    for (const RankRecord& rank : world.Join()) {
      EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kAborted) << rank.result.status;
      EXPECT_THAT(std::string(rank.result.status.message()), HasSubstr("cancelled by the user"));
    }
    EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));
  }
}

// F8: a rank that leaves in the middle of a step takes its memory with it only when the
// communicator's thread has let go of it. The units are large enough to be given back to the system
// at once.
TEST(Trainer, LetsGoOfItsMemoryOnlyWhenNothingReadsOrWritesIt) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  const std::vector<absl::string_view> strategies = testing::StrategiesOf(2);
  for (int trial = 0; trial < 14; ++trial) {
    const absl::string_view strategy = strategies[static_cast<size_t>(trial) % strategies.size()];
    v1::JobSpec spec = testing::TinyJob(text, strategy, v1::DATA_TYPE_FP32, 2, 1000000);
    spec.mutable_model()->set_hidden(512);
    spec.mutable_model()->set_ffn(1024);
    std::set<v1::GroupKind> over_tcp;
    if (trial % 4 >= 2) over_tcp = {v1::GROUP_KIND_DATA, v1::GROUP_KIND_SHARD};
    LocalWorld world(spec, 2, 1, over_tcp);
    world.Start();
    world.WaitForStep(0, 1 + trial % 2);
    if (trial % 3 == 0) {
      std::filesystem::resize_file(text, 10);
    } else {
      for (int rank = 0; rank < 2; ++rank) world.trainer(rank).Abort("stop");
    }
    for (const RankRecord& rank : world.Join()) EXPECT_FALSE(rank.result.status.ok());
    scratch.Write("train.txt", testing::MakeText(3000, 1));
  }
}

// F15: an evaluation of weights that are no numbers, and such weights themselves, are errors.
TEST(Trainer, RefusesToLeaveWeightsThatAreNoNumbers) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  for (const bool evaluates : {true, false}) {
    v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_FP32, 2, 1);
    // The only update overflows.
    spec.mutable_train()->mutable_optimizer()->set_lr(3e38);
    spec.mutable_train()->mutable_optimizer()->set_weight_decay(1e3);
    if (evaluates) spec.mutable_data()->add_eval(text);
    for (const RankRecord& rank : LocalWorld(spec, 2).Run()) {
      EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kDataLoss) << rank.result.status;
    }
    // The figures of what went wrong stay.
    for (const auto& left : std::filesystem::directory_iterator(spec.checkpoint().dir())) {
      EXPECT_FALSE(left.is_directory()) << left.path();
    }
  }
}

// A job that cannot fit is refused with the pools that take most.
TEST(Trainer, RefusesWhatDoesNotFitIntoTheHost) {  // F19, F20
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  v1::JobSpec spec = testing::TinyJob(text, "ddp", v1::DATA_TYPE_FP32, 2, 1);
  spec.mutable_model()->set_vocab(1 << 20);
  spec.mutable_model()->set_hidden(1 << 14);
  const std::vector<RankRecord> ranks = LocalWorld(spec, 1).Run();
  EXPECT_EQ(ranks[0].result.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(ranks[0].result.status.message()), HasSubstr("optimizer"));
}

// F33: a rank whose peers never come ends when it is told to.
TEST(Trainer, EndsSoonAfterAnAbortWhileForming) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  const v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_FP32, 4, 10);
  LocalWorld world(spec, 2);
  world.trainer(1).Abort("never started");
  world.Start();
  const absl::Time start = absl::Now();
  world.trainer(0).Abort("its peer is gone");
  for (const RankRecord& rank : world.Join()) {
    EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kAborted) << rank.result.status;
  }
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));
}

// F58: an ended job leaves no series behind.
TEST(TrainMetrics, DisappearWithTheJob) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  const v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_BF16, 4, 3);
  LocalWorld world(spec, 2);
  for (const RankRecord& rank : world.Run()) EXPECT_TRUE(rank.result.status.ok());
  const std::string scraped = prometheus::TextSerializer().Serialize(world.registry().Collect());
  EXPECT_EQ(scraped.find("job=\"j-1\""), std::string::npos) << scraped;
}

}  // namespace
}  // namespace sherd
