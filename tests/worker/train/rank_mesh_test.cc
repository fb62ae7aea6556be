#include "worker/train/rank_mesh.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/memory.h"
#include "plan/ledger.h"
#include "plan/wire.h"
#include "prometheus/registry.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/comm/communicator_kinds.h"
#include "tests/worker/train/local_world.h"
#include "worker/dataset/job_dataset.h"
#include "worker/train/rank_job.h"

namespace sherd {
namespace {

constexpr int kRanks = 8;

// Two replicas of two sharers, each a tensor-parallel group of two: of rank r bit 0 is the place in
// the tensor-parallel group, bit 1 that among the sharers, bit 2 that among the replicas.
std::vector<std::unique_ptr<RankMesh>> MakeMeshes() {
  std::vector<RankMesh::Axes> axes(kRanks);
  const auto form = [&](int bit, RankMesh::Axis RankMesh::Axes::*axis) {
    for (int first = 0; first < kRanks; ++first) {
      if (((first >> bit) & 1) != 0) continue;
      const std::vector<int> ranks = {first, first | 1 << bit};
      auto members = AllCommunicatorKinds().front().form(2, {.arena_bytes = 0});
      for (size_t place = 0; place < 2; ++place) {
        axes[static_cast<size_t>(ranks[place])].*axis = {std::move(members[place]), ranks};
      }
    }
  };
  form(0, &RankMesh::Axes::tensor);
  form(1, &RankMesh::Axes::sharers);
  form(2, &RankMesh::Axes::replicas);
  std::vector<std::unique_ptr<RankMesh>> meshes;
  for (RankMesh::Axes& each : axes) meshes.push_back(std::make_unique<RankMesh>(std::move(each)));
  return meshes;
}

TEST(RankMesh, BringsAllRecordsTogetherInRankOrder) {
  const auto meshes = MakeMeshes();
  RunRanks(kRanks, [&](int rank) {
    RankMesh& mesh = *meshes[static_cast<size_t>(rank)];
    EXPECT_EQ(mesh.rank(), rank);
    EXPECT_EQ(mesh.size(), kRanks);
    EXPECT_EQ(mesh.data_size(), 4);
    std::array<int, kRanks> records{};
    ASSERT_TRUE(mesh.Exchange(&rank, records.data(), sizeof(int)).ok());
    for (int other = 0; other < kRanks; ++other)
      EXPECT_EQ(records[static_cast<size_t>(other)], other);
  });
}

// F35: also of ranks that have no group in common.
TEST(RankMesh, NobodyLeavesABarrierBeforeAllHaveEntered) {
  const auto meshes = MakeMeshes();
  std::atomic<int> entered{0};
  RunRanks(kRanks, [&](int rank) {
    for (int round = 1; round <= 50; ++round) {
      entered.fetch_add(1);
      ASSERT_TRUE(meshes[static_cast<size_t>(rank)]->Barrier().ok());
      EXPECT_GE(entered.load(), kRanks * round);
    }
  });
}

// F22, F29
TEST(RankMesh, AnAbortEndsEveryAxis) {
  const auto meshes = MakeMeshes();
  RankMesh& mesh = *meshes[5];
  mesh.Abort("a test");
  for (const Communicator* comm : {&mesh.sharers(), static_cast<Communicator*>(mesh.replicas()),
                                   static_cast<Communicator*>(mesh.tensor())}) {
    EXPECT_EQ(comm->status().code(), absl::StatusCode::kAborted);
  }
  EXPECT_FALSE(mesh.status().ok());
}

// A group of one whose exchanges fail. What it is asked after that: 'a', an abort, or 'q', a wait
// until it is quiet.
class FailingCommunicator final : public Communicator {
 public:
  explicit FailingCommunicator(int64_t arena_bytes) : arena_(meter_, Pool::kComm, arena_bytes) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::string_view transport() const override { return "shm"; }
  std::byte* arena() const override { return arena_.data(); }
  int64_t arena_bytes() const override { return arena_.bytes(); }
  int64_t control_bytes() const override { return 0; }
  Ticket AllGather(const void*, void*, int64_t) override { return kWorks; }
  Ticket ReduceScatter(const void*, int, TreeAccumulator*) override { return kWorks; }
  Ticket ReduceScatterInPlace(void*, absl::Span<const int64_t>, DType, int) override {
    return kWorks;
  }
  Ticket AllReduce(void*, int64_t, DType, int) override { return kWorks; }
  Ticket Broadcast(void*, int64_t, int) override { return kWorks; }
  Ticket Barrier() override { return kBarrier; }
  Ticket Exchange(const void*, void*, int64_t) override { return kFails; }
  absl::Status Wait(Ticket ticket) override {
    if (ticket == kBarrier) asked_ += 'q';
    return ticket == kFails ? absl::UnavailableError("a test") : absl::OkStatus();
  }
  void Abort(absl::string_view) override { asked_ += 'a'; }
  absl::Status status() const override { return absl::OkStatus(); }
  WireCounts counts() const override { return {}; }
  int ended_by() const override { return -1; }
  std::vector<int> missing() const override { return {}; }

  const std::string& asked() const { return asked_; }

 private:
  static constexpr Ticket kWorks = 1, kBarrier = 2, kFails = 3;
  MemoryMeter meter_;
  Buffer arena_;
  std::string asked_;
};

// F8: on every axis operations may be under way.
TEST(RankMesh, WaitsUntilEveryAxisIsQuiet) {
  RankMesh::Axes axes;
  std::vector<const FailingCommunicator*> comms;
  for (RankMesh::Axis* axis : {&axes.sharers, &axes.replicas, &axes.tensor, &axes.kv_copies}) {
    auto comm = std::make_unique<FailingCommunicator>(0);
    comms.push_back(comm.get());
    axis->comm = std::move(comm);
  }
  RankMesh mesh(std::move(axes));
  mesh.AwaitQuiet();
  for (const FailingCommunicator* comm : comms) EXPECT_EQ(comm->asked(), "q");
}

struct SilentObserver final : TrainObserver {
  void OnReady(const v1::RankReady&) override {}
  void OnStep(const v1::StepReport&) override {}
  void OnEval(const v1::EvalReport&) override {}
  void OnLedger(const v1::RankLedger&) override {}
  void OnLog(absl::string_view) override {}
  void OnWarning(const v1::Warning&) override {}
  void OnCheckpoint(const v1::CheckpointReport&) override {}
};

// F8: an operation that is under way when a step fails may read and write the job's memory; the job
// goes when it has ended, which after an abort is soon.
TEST(RankJob, EndsOnlyWhenNothingTouchesItsMemory) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 1));
  v1::Assignment assignment;
  assignment.set_job_id("j-1");
  assignment.set_world(1);
  *assignment.mutable_spec() = testing::TinyJob(text, "zero3", v1::DATA_TYPE_FP32, 2, 3);
  assignment.mutable_spec()->mutable_elastic()->set_replicas(0);
  const RankPlan plan = BuildRankPlan(assignment.spec(), 0, 1);
  auto comm = std::make_unique<FailingCommunicator>(ArenaBytes(plan));
  const FailingCommunicator& sharers = *comm;
  RankMesh::Axes axes;
  axes.sharers = {std::move(comm), {0}};
  RankMesh mesh(std::move(axes));
  absl::StatusOr<JobDataset> data =
      OpenJobDataset(assignment.spec(),
                     {.data_root = "", .cache_directory = scratch / "tokens", .stopped = nullptr});
  ASSERT_TRUE(data.ok()) << data.status();
  prometheus::Registry metrics;
  SilentObserver observer;
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  RankJob job(assignment, plan, 1, mesh, /*segment=*/nullptr, JobData(*std::move(data)),
              {*files, ""}, metrics, observer);
  EXPECT_EQ(job.Run().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(sharers.asked(), "aq");
}

// F34, F54: an error of a group names places in it; the mesh knows whose they are.
TEST(RankMesh, NamesTheRanksOfTheWorld) {
  const auto meshes = MakeMeshes();
  meshes[3]->tensor()->Abort("a test");
  const absl::Status error = meshes[2]->tensor()->Wait(meshes[2]->tensor()->Barrier());
  EXPECT_EQ(meshes[2]->ended_by(error), 3);
  EXPECT_EQ(meshes[2]->Explain(error).message(),
            absl::StrCat(error.message(), " (ranks of a group that are ranks 2, 3 of the job)"));
  const absl::Status where_numbers_agree = [&] {
    meshes[1]->tensor()->Abort("a test");
    return meshes[0]->tensor()->Wait(meshes[0]->tensor()->Barrier());
  }();
  EXPECT_EQ(meshes[0]->Explain(where_numbers_agree), where_numbers_agree);
}

// A rank ends its other groups with the words that it has heard in one.
TEST(RankMesh, FindsTheGroupThatAnErrorCameFrom) {
  const auto meshes = MakeMeshes();
  meshes[3]->tensor()->Abort("a test");
  const absl::Status error = meshes[2]->tensor()->Wait(meshes[2]->tensor()->Barrier());
  ASSERT_EQ(error.code(), absl::StatusCode::kAborted);
  meshes[2]->Abort(error.message());
  EXPECT_EQ(meshes[2]->sharers().status(), error);
  EXPECT_EQ(meshes[2]->ended_by(error), 3);
}

// A group of two that has ended, with that first error and by that member.
class EndedCommunicator final : public Communicator {
 public:
  EndedCommunicator(absl::Status status, int ended_by)
      : status_(std::move(status)), ended_by_(ended_by) {}

  int rank() const override { return 0; }
  int size() const override { return 2; }
  absl::string_view transport() const override { return "nccl"; }
  std::byte* arena() const override { return nullptr; }
  int64_t arena_bytes() const override { return 0; }
  int64_t control_bytes() const override { return 0; }
  Ticket AllGather(const void*, void*, int64_t) override { return 1; }
  Ticket ReduceScatter(const void*, int, TreeAccumulator*) override { return 1; }
  Ticket ReduceScatterInPlace(void*, absl::Span<const int64_t>, DType, int) override { return 1; }
  Ticket AllReduce(void*, int64_t, DType, int) override { return 1; }
  Ticket Broadcast(void*, int64_t, int) override { return 1; }
  Ticket Barrier() override { return 1; }
  Ticket Exchange(const void*, void*, int64_t) override { return 1; }
  absl::Status Wait(Ticket) override { return status_; }
  void Abort(absl::string_view) override {}
  absl::Status status() const override { return status_; }
  WireCounts counts() const override { return {}; }
  int ended_by() const override { return ended_by_; }
  std::vector<int> missing() const override { return {}; }

 private:
  const absl::Status status_;
  const int ended_by_;
};

// F34: groups over NCCL end together, the others as aborted with the words of the first.
TEST(RankMesh, FindsTheGroupOfAnErrorThatEndedTheOthersAsAnAbort) {
  constexpr absl::string_view kGone = "rank 1: its process went away";
  const absl::Status gone = absl::UnavailableError(kGone);
  const absl::Status told = absl::AbortedError(kGone);
  // Nobody told the other group, or somebody who had heard of it too.
  for (const int teller : {-1, 1}) {
    for (const bool of_sharers : {false, true}) {
      const auto ended = [&](bool first, std::vector<int> ranks) {
        return RankMesh::Axis{
            std::make_unique<EndedCommunicator>(first ? gone : told, first ? 1 : teller),
            std::move(ranks)};
      };
      RankMesh::Axes axes;
      axes.sharers = ended(of_sharers, {0, 2});
      axes.tensor = ended(!of_sharers, {0, 1});
      const RankMesh mesh(std::move(axes));
      const int lost = of_sharers ? 2 : 1;
      EXPECT_EQ(mesh.ended_by(gone), lost) << teller;
      EXPECT_EQ(mesh.ended_by(told), lost) << teller;
      EXPECT_EQ(mesh.Explain(told).message(), WithRanks(told, {0, lost}).message());
    }
  }
}

// A cause of the rank's own is not blamed on whoever has ended a group meanwhile.
TEST(RankMesh, BlamesNobodyForAnErrorThatIsNoGroups) {
  const auto meshes = MakeMeshes();
  meshes[3]->tensor()->Abort("a test");
  EXPECT_FALSE(meshes[2]->tensor()->Wait(meshes[2]->tensor()->Barrier()).ok());
  const absl::Status own = absl::DataLossError("the loss is no number");
  EXPECT_EQ(meshes[2]->ended_by(own), -1);
  EXPECT_EQ(meshes[2]->Explain(own), own);
  EXPECT_EQ(meshes[2]->ended_by(absl::OkStatus()), -1);
}

// An empty part is no message, predicted and counted.
TEST(WireCounts, OfFewerElementsThanMembersAreThePredicted) {
  for (const CommunicatorKind& kind : AllCommunicatorKinds()) {
    for (const int64_t elements : {0, 1, 2, 3, 4}) {
      auto members = kind.form(3, {.arena_bytes = 64});
      RunRanks(3, [&](int rank) {
        Communicator& comm = *members[static_cast<size_t>(rank)];
        EXPECT_TRUE(comm.Wait(comm.AllReduce(comm.arena(), elements, DType::kF32, 3)).ok());
      });
      for (int rank = 0; rank < 3; ++rank) {
        const WireCount sent = members[static_cast<size_t>(rank)]
                                   ->counts()[static_cast<size_t>(Collective::kAllReduce)];
        EXPECT_EQ(Wire({sent.bytes, sent.messages}), AllReduceWire(3, rank, elements, 4))
            << elements << " rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace sherd
