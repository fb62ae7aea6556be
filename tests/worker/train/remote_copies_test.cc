// A world over two hosts: copies of every rank's shard are on the other one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "plan/ledger.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "worker/comm/deadline.h"
#include "worker/comm/link_socket.h"
#include "worker/comm/link_stream.h"
#include "worker/train/rank_groups.h"

namespace sherd::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 8;

class RemoteCopies : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy, v1::DataType type = v1::DATA_TYPE_BF16,
                  int64_t tensor = 1, int64_t steps = kSteps) {
    v1::JobSpec spec = TinyJob(text_, strategy, type, 8, steps);
    spec.mutable_parallel()->set_tensor(tensor);
    return spec;
  }

  std::vector<v1::StepReport> Undisturbed(const v1::JobSpec& spec, int world) {
    std::vector<RankRecord> records = LocalWorld(spec, world).Run();
    EXPECT_TRUE(records[0].result.status.ok()) << records[0].result.status;
    return records[0].steps;
  }

  // Adds what a rank 0 reported.
  static void Append(const std::vector<RankRecord>& records, std::vector<v1::StepReport>& curve) {
    curve.insert(curve.end(), records[0].steps.begin(), records[0].steps.end());
  }

  static void ExpectSame(const std::vector<v1::StepReport>& ours,
                         const std::vector<v1::StepReport>& theirs) {
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(ours[i].step(), static_cast<int64_t>(i) + 1);
      EXPECT_EQ(ours[i].loss(), theirs[i].loss()) << "step " << ours[i].step();
      EXPECT_EQ(ours[i].grad_norm(), theirs[i].grad_norm()) << "step " << ours[i].step();
    }
  }

  // Trains over two hosts until `step` is committed, and aborts.
  std::vector<RankRecord> TrainTo(LocalWorld& world, int ranks, int64_t step) {
    world.Start();
    world.WaitForStep(0, step);
    for (int rank = 0; rank < ranks; ++rank) world.trainer(rank).Abort("a test");
    return world.Join();
  }

  static Version Choose(const v1::JobSpec& spec, const LocalWorkers& workers, int64_t epoch) {
    std::vector<Holder> holders;
    for (size_t i = 0; i < workers.size(); ++i) {
      holders.push_back({absl::StrCat(i), workers[i]->holdings.Seal("j-1", epoch)});
    }
    const std::optional<Version> version = ChooseVersion(spec, 0, holders);
    EXPECT_TRUE(version.has_value());
    return version.value_or(Version{});
  }

  // The host of ranks 0 and 1 dies after `step`, and `more` workers of a third one come; the curve.
  std::vector<v1::StepReport> WithoutAHost(const v1::JobSpec& spec, int64_t step, int more) {
    std::vector<v1::StepReport> curve;
    LocalWorkers workers = MakeWorkers(4, 2);
    {
      LocalWorld first(spec, 4, {.workers = workers});
      Append(TrainTo(first, 4, step), curve);
    }
    workers.erase(workers.begin(), workers.begin() + 2);
    const Version version = Choose(spec, workers, 1);
    EXPECT_GE(version.step, static_cast<int64_t>(curve.size()));
    LocalEpoch epoch{.epoch = 2, .restore = version, .holders = workers};
    epoch.reported_step = static_cast<int64_t>(curve.size());
    epoch.workers = workers;
    for (int at = 0; at < more; ++at) {
      epoch.workers.insert(epoch.workers.begin(), std::make_shared<LocalWorker>(2));
    }
    const int world = static_cast<int>(epoch.workers.size());
    const std::vector<RankRecord> records = LocalWorld(spec, world, std::move(epoch)).Run();
    for (const RankRecord& record : records) {
      EXPECT_TRUE(record.result.status.ok()) << record.result.status;
      EXPECT_EQ(record.copies, 1);
    }
    Append(records, curve);
    return curve;
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", MakeText(4000, 3));
};

// F21, F48: both processes of a host die at the same moment, and no committed step is lost: what
// they held is on the other host. New workers on a third host read it over TCP.
TEST_F(RemoteCopies, AHostDiesAndTheCurveDoesNotShowIt) {
  for (const absl::string_view strategy : {"zero3", "zero1", "ddp"}) {
    SCOPED_TRACE(strategy);
    const v1::JobSpec spec = Job(strategy);
    ExpectSame(WithoutAHost(spec, 3, 2), Undisturbed(spec, 4));
  }
  const v1::JobSpec tensor = Job("zero3", v1::DATA_TYPE_FP32, 2);
  ExpectSame(WithoutAHost(tensor, 3, 2), Undisturbed(tensor, 4));
}

// Without other workers those that are left go on alone, each with two parts, or part of them.
TEST_F(RemoteCopies, AHostDiesAndTheOtherGoesOnAlone) {
  const v1::JobSpec spec = Job("zero3");
  const std::vector<v1::StepReport> undisturbed = Undisturbed(spec, 4);
  ExpectSame(WithoutAHost(spec, 4, 0), undisturbed);
  ExpectSame(WithoutAHost(spec, 4, 3), undisturbed);
}

// Before the first step of an epoch the copies have what it started from, and go through any
// number of epochs.
TEST_F(RemoteCopies, HostAfterHostDies) {
  const v1::JobSpec spec = Job("zero3");
  std::vector<v1::StepReport> curve;
  LocalWorkers workers = MakeWorkers(4, 2);
  {
    LocalWorld first(spec, 4, {.workers = workers});
    Append(TrainTo(first, 4, 2), curve);
  }
  for (int64_t epoch = 2; epoch <= 4; ++epoch) {
    workers.erase(workers.begin(), workers.begin() + 2);
    const Version version = Choose(spec, workers, epoch - 1);
    ASSERT_GE(version.step, static_cast<int64_t>(curve.size()));
    LocalEpoch next{.epoch = epoch, .restore = version, .holders = workers};
    next.reported_step = static_cast<int64_t>(curve.size());
    for (int at = 0; at < 2; ++at) {
      workers.push_back(std::make_shared<LocalWorker>(static_cast<int>(epoch)));
    }
    next.workers = workers;
    // The third one trains nothing.
    next.save_and_stop = epoch == 3;
    LocalWorld world(spec, 4, std::move(next));
    Append(epoch == 2 ? TrainTo(world, 4, version.step + 1) : world.Run(), curve);
    for (const std::shared_ptr<LocalWorker>& worker : workers) {
      worker->holdings.Retain("j-1", epoch);
    }
  }
  ExpectSame(curve, Undisturbed(spec, 4));
}

// F32: what a process stores for ranks of another host is in its ledger, to the byte.
TEST_F(RemoteCopies, AreInTheLedger) {
  for (const absl::string_view strategy : {"zero3", "ddp"}) {
    const v1::JobSpec spec = Job(strategy);
    LocalWorld world(spec, 4, {.workers = MakeWorkers(4, 2)});
    const std::vector<RankRecord> ranks = world.Run();
    ExpectExactLedgers(ranks, std::string(strategy));
    const RankPlan plan = BuildRankPlan(spec, 2, 4);
    const int64_t replicas = ranks[2].ledgers.back().memory().at("replicas").measured();
    const int64_t own = PredictLedger(plan, spec).memory().at("replicas").predicted();
    // Ranks 0 and 1 come to rank 2, the first on the other host.
    EXPECT_EQ(replicas - own, 2 * HoldingBytes(plan));
    EXPECT_EQ(world.workers()[2]->holdings.BytesFor("j-1", 1), 2 * HoldingBytes(plan));
  }
}

TEST_F(RemoteCopies, AreOfOtherRanksOfTheWorld) {
  v1::Assignment assignment;
  assignment.set_world(4);
  assignment.set_rank(2);
  for (const int owner : {0, 3}) assignment.add_stored_for(owner);
  EXPECT_TRUE(CheckStoredFor(assignment).ok());
  for (const int owner : {-1, 2, 4}) {
    assignment.set_stored_for(1, owner);
    EXPECT_EQ(CheckStoredFor(assignment).code(), absl::StatusCode::kInvalidArgument) << owner;
  }
}

// A step counts when it is stored there too: without its answer there is none. The rank ends in
// time with its epoch, and says nothing that would fail the job.
TEST_F(RemoteCopies, AMuteHolderCommitsNothingAndHoldsNobodyUp) {
  const v1::JobSpec spec = Job("zero3");
  std::string address;
  const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
  LocalWorld world(spec, 2, {.holders_of = {{0, address}}});
  world.Start();
  pollfd comes = {listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&comes, 1, 20'000), 1);
  LinkStream holder(*AcceptLink(listener.get()), {});
  ASSERT_TRUE(holder.Receive<LinkHolding>().ok());
  ASSERT_TRUE(holder.Send(LinkStored{}).ok());
  const absl::StatusOr<LinkVersion> version = holder.Receive<LinkVersion>();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->step, 1);
  ASSERT_TRUE(holder.Receive<LinkReports>().ok());
  std::vector<std::byte> slot(static_cast<size_t>(VersionBytes(BuildRankPlan(spec, 0, 2))));
  ASSERT_TRUE(holder
                  .ReceiveBytes(slot.data(), static_cast<int64_t>(slot.size()),
                                [](const std::byte*, int64_t) {})
                  .ok());
  // It has all of step 1 and does not say so: no step comes after it.
  EXPECT_EQ(holder.Receive<LinkVersion>(absl::Milliseconds(300)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  // Whoever asks is told how much was sent.
  EXPECT_EQ(world.trainer(0).Position().copied_bytes, static_cast<int64_t>(slot.size()));
  EXPECT_EQ(world.trainer(1).Position().copied_bytes, 0);
  const Deadline soon(absl::Milliseconds(500));
  for (int rank = 0; rank < 2; ++rank) world.trainer(rank).Abort("a test");
  const std::vector<RankRecord> records = world.Join();
  EXPECT_FALSE(soon.passed());
  for (const RankRecord& record : records) {
    EXPECT_EQ(record.result.status.code(), absl::StatusCode::kAborted) << record.result.status;
    EXPECT_TRUE(record.steps.empty());
  }
}

// A holder that is no rank, on another host; `end` is what becomes of it after step 2.
class RemoteHolder : public RemoteCopies {
 protected:
  TrainResult TrainWith(void (*end)(std::shared_ptr<LocalWorker>& holder)) {
    const v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_BF16, 1, 1'000'000);
    auto holder = std::make_shared<LocalWorker>(1);
    address_ = holder->listener->network_address();
    v1::Hold hold;
    hold.set_job_id("j-1");
    hold.set_epoch(1);
    hold.set_world(2);
    hold.add_owners(0);
    hold.set_secret(SecretOf(1));
    holder->holdings.Expect(hold);
    LocalWorld world(spec, 2, {.holders_of = {{0, address_}}});
    world.Start();
    world.WaitForStep(0, 2);
    for (const prometheus::MetricFamily& family : world.registry().Collect()) {
      if (family.name != "sherd_replica_bytes_total") continue;
      for (const auto& rank : family.metric) sent_bytes_ += rank.counter.value;
    }
    end(holder);
    // The rank ends by itself, and its peer with it.
    const std::vector<RankRecord> records = world.Join();
    committed_ = records[0].result.step;
    if (holder != nullptr) held_ = holder->holdings.Seal("j-1", 1);
    return records[0].result;
  }

  std::string address_;
  int64_t committed_ = 0;
  double sent_bytes_ = 0;  // of step 1, or more
  std::vector<v1::Holding> held_;
};

// F22: the epoch ends, and another attempt is made.
TEST_F(RemoteHolder, ThatDiesEndsTheEpochAndNotTheJob) {
  const TrainResult result =
      TrainWith([](std::shared_ptr<LocalWorker>& holder) { holder.reset(); });
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable) << result.status;
  EXPECT_THAT(std::string(result.status.message()), HasSubstr(address_));
  EXPECT_FALSE(result.final);
  EXPECT_EQ(result.lost_peer, -1);
  EXPECT_EQ(result.lost_holder, address_);
  EXPECT_GE(sent_bytes_, static_cast<double>(VersionBytes(BuildRankPlan(Job("zero3"), 0, 2))));
}

// F27: one that has told what it holds stores nothing more, and no step counts without it.
TEST_F(RemoteHolder, ThatIsSealedEndsTheEpoch) {
  const TrainResult result =
      TrainWith([](std::shared_ptr<LocalWorker>& holder) { holder->holdings.Seal("j-1", 1); });
  EXPECT_EQ(result.status.code(), absl::StatusCode::kAborted) << result.status;
  EXPECT_THAT(std::string(result.status.message()), HasSubstr(address_));
  EXPECT_FALSE(result.final);
  EXPECT_EQ(result.lost_holder, "") << "nothing is wrong with the link";
  ASSERT_FALSE(held_.empty());
  const auto newest = std::max_element(
      held_.begin(), held_.end(),
      [](const v1::Holding& a, const v1::Holding& b) { return a.step() < b.step(); });
  EXPECT_GE(newest->step(), committed_);
}

TEST_F(RemoteCopies, AHolderThatWasNeverToldIsNamed) {
  const v1::JobSpec spec = Job("zero3");
  const auto holder = std::make_shared<LocalWorker>(1);
  holder->holdings.Seal("j-1", 1);
  const std::string address = holder->listener->network_address();
  LocalWorld world(spec, 2, {.holders_of = {{0, address}}});
  const std::vector<RankRecord> records = world.Run();
  EXPECT_EQ(records[0].result.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(records[0].result.status.message()), HasSubstr(address));
  EXPECT_FALSE(records[0].ready);
}

// A process that holds a segment of the rank without the step reads it where the plan says.
TEST_F(RemoteCopies, ARankWhoseOwnSegmentLacksTheStepReadsItElsewhere) {
  const v1::JobSpec spec = Job("zero3");
  std::vector<v1::StepReport> curve;
  LocalWorkers workers = MakeWorkers(2, 2);
  LocalWorld first(spec, 2, {.workers = workers});
  Append(TrainTo(first, 2, 3), curve);
  const Version version = Choose(spec, workers, 1);
  const std::shared_ptr<HoldingSegment> own = workers[0]->holdings.Find({"j-1", 1, 2, 0});
  own->Discard(own->FindStep(version.step));
  LocalEpoch epoch{.epoch = 2, .workers = workers, .restore = version, .holders = workers};
  epoch.reported_step = static_cast<int64_t>(curve.size());
  const std::vector<RankRecord> records = LocalWorld(spec, 2, std::move(epoch)).Run();
  EXPECT_TRUE(records[0].result.status.ok()) << records[0].result.status;
  Append(records, curve);
  ExpectSame(curve, Undisturbed(spec, 2));
}

TEST_F(RemoteCopies, AProcessThatGivesNothingIsNamedIfItIsNotReached) {
  const v1::JobSpec spec = Job("zero3");
  LocalWorkers workers = MakeWorkers(2, 2);
  {
    LocalWorld first(spec, 2, {.workers = workers});
    TrainTo(first, 2, 3);
  }
  const Version version = Choose(spec, workers, 1);
  const std::string address = workers[1]->listener->network_address();
  LocalEpoch epoch{.epoch = 2, .restore = version, .holders = {workers[1]}};
  epoch.workers = MakeWorkers(2, 2);
  LocalWorld world(spec, 2, std::move(epoch));
  workers.clear();
  const std::vector<RankRecord> records = world.Run();
  EXPECT_EQ(records[0].result.status.code(), absl::StatusCode::kUnavailable)
      << records[0].result.status;
  EXPECT_TRUE(records[0].result.lost_holder == address || records[1].result.lost_holder == address)
      << records[0].result.status << records[1].result.status;
}

// F46: bytes that have changed in the other host's memory are not restored, nor held any more.
TEST_F(RemoteCopies, DamagedBytesAreNotRestored) {
  const v1::JobSpec spec = Job("zero3");
  LocalWorkers workers = MakeWorkers(2, 2);
  {
    LocalWorld first(spec, 2, {.workers = workers});
    TrainTo(first, 2, 3);
  }
  workers.erase(workers.begin());
  const Version version = Choose(spec, workers, 1);
  const std::shared_ptr<HoldingSegment> copy = workers[0]->holdings.Find({"j-1", 1, 2, 0});
  copy->slot(copy->FindStep(version.step))[copy->slot_bytes() / 2] ^= std::byte{1};
  LocalEpoch epoch{.epoch = 2, .restore = version, .holders = workers};
  epoch.workers = {std::make_shared<LocalWorker>(0), workers[0]};
  const std::vector<RankRecord> records = LocalWorld(spec, 2, std::move(epoch)).Run();
  EXPECT_EQ(records[0].result.status.code(), absl::StatusCode::kUnavailable)
      << records[0].result.status;
  EXPECT_FALSE(records[0].result.final);
  EXPECT_EQ(copy->FindStep(version.step), -1);
}

}  // namespace
}  // namespace sherd::testing
