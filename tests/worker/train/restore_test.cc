// What a rank goes on from, piece by piece.
#include "worker/train/restore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "plan/ledger.h"
#include "plan/world_layout.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/jobs.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/lost_holder.h"
#include "worker/train/rank_memory.h"

namespace sherd::testing {
namespace {

constexpr int64_t kStep = 7;
constexpr char kSecret[] = "secret";

// A rank alone, that restores what this process holds or another one gives it.
class Restore : public ::testing::Test {
 protected:
  Restore() {
    // Some pieces of each array.
    spec_ = MakeJob("zero3", v1::DATA_TYPE_FP32, 1,
                    {.layers = 1, .hidden = 512, .ffn = 2048, .context = 16, .micro_batch = 1});
    plan_ = std::make_unique<RankPlan>(BuildRankPlan(spec_, 0, 1));
    arena_ = Buffer(meter_, Pool::kComm, ArenaBytes(*plan_));
    memory_ = std::make_unique<RankMemory>(*plan_, RankArenas{.sharers = arena_.data()},
                                           VersionSlots{}, meter_);
    held_ = *holder_.Make({"j-1", 1, 1, 0}, VersionBytes(*plan_), kSecret);
    for (int64_t at = 0; at < held_->slot_bytes(); at += 8) {
      held_->slot(0)[at] = static_cast<std::byte>(at / 8 % 251);
    }
    held_->Complete(0, kStep, held_->Checksum(0), {3, 0.5});
    own_segment_ = *HoldingSegment::Create({"j-1", 2, 1, 0}, VersionBytes(*plan_));
    assignment_.set_job_id("j-1");
    assignment_.set_epoch(2);
    assignment_.set_world(1);
    *assignment_.mutable_spec() = spec_;
    v1::RestorePlan& restore = *assignment_.mutable_restore();
    restore.set_epoch(1);
    restore.set_world(1);
    restore.set_step(kStep);
    restore.set_secret(kSecret);
  }

  absl::StatusOr<VersionFigures> RestoreFrom(const std::string& address,
                                             const HoldingStore& own_store,
                                             const CopyWatch& watch) {
    assignment_.mutable_restore()->clear_sources();
    assignment_.mutable_restore()->add_sources()->set_address(address);
    return RestoreVersion(assignment_, *plan_, {own_store, {"own"}}, abort_, watch, *memory_,
                          *own_segment_);
  }

  // Ends the epoch when so much was moved; how much was moved after that.
  int64_t MovedAfterAnAbort(const std::string& address, const HoldingStore& own_store, int64_t at) {
    int64_t moved = 0;
    int64_t until_abort = 0;
    const absl::Status restored = RestoreFrom(address, own_store, [&](int64_t bytes) {
                                    moved += bytes;
                                    if (moved >= at && !abort_.aborted()) {
                                      abort_.Abort("in the middle");
                                      until_abort = moved;
                                    }
                                    return absl::OkStatus();
                                  }).status();
    EXPECT_EQ(restored.code(), absl::StatusCode::kAborted) << restored;
    EXPECT_EQ(restored.message(), "in the middle");
    EXPECT_GT(until_abort, 0);
    return moved - until_abort;
  }

  v1::JobSpec spec_;
  MemoryMeter meter_;
  std::unique_ptr<RankPlan> plan_;
  Buffer arena_;
  std::unique_ptr<RankMemory> memory_;
  HoldingStore holder_, nothing_;
  std::shared_ptr<HoldingSegment> held_, own_segment_;
  v1::Assignment assignment_;
  FormationAbort abort_;
  const std::unique_ptr<DataListener> listener_ = *DataListener::Bind();
  const std::unique_ptr<HoldingServer> server_ = *HoldingServer::Start(*listener_, holder_);
};

TEST_F(Restore, IsHeardOfPieceByPieceWhereverItComesFrom) {
  const int64_t bytes = VersionBytes(*plan_);
  for (const std::string& address :
       {std::string("own"), listener_->address(), listener_->network_address()}) {
    int64_t moved = 0;
    const HoldingStore& own = address == "own" ? holder_ : nothing_;
    const absl::StatusOr<VersionFigures> figures = RestoreFrom(address, own, [&](int64_t piece) {
      EXPECT_LE(piece, kWatchedBytes);
      moved += piece;
      return absl::OkStatus();
    });
    ASSERT_TRUE(figures.ok()) << figures.status();
    EXPECT_EQ(figures->skipped_windows, 3);
    // A holder on another host looks at it by itself.
    EXPECT_EQ(moved, address == listener_->network_address() ? bytes : 2 * bytes);
    const AdamWState& state = memory_->unit(0).state;
    EXPECT_EQ(std::memcmp(state.master, held_->slot(0), 1000), 0);
  }
}

// F29: a part may have gigabytes, and nobody waits for all of it.
TEST_F(Restore, EndsInTheMiddleOfALookAtAPart) {
  EXPECT_EQ(MovedAfterAnAbort("own", holder_, VersionBytes(*plan_) / 2), 0);
}
TEST_F(Restore, EndsInTheMiddleOfAPart) {
  EXPECT_EQ(MovedAfterAnAbort("own", holder_, VersionBytes(*plan_) * 3 / 2), 0);
}
TEST_F(Restore, EndsInTheMiddleOfAPartOfAnotherProcess) {
  EXPECT_EQ(MovedAfterAnAbort(listener_->address(), nothing_, VersionBytes(*plan_) * 3 / 2), 0);
}
TEST_F(Restore, EndsInTheMiddleOfAPartFromAnotherHost) {
  EXPECT_LE(MovedAfterAnAbort(listener_->network_address(), nothing_, VersionBytes(*plan_) / 2),
            kWatchedBytes);
}

using FewDescriptorsRestore = Restore;
TEST_F(FewDescriptorsRestore, BlamesNoHolder) {
  for (const std::string& address : {listener_->address(), listener_->network_address()}) {
    const FewDescriptors none(0);
    const absl::Status restored = RestoreFrom(address, nothing_, nullptr).status();
    EXPECT_EQ(restored.code(), absl::StatusCode::kResourceExhausted) << restored;
    EXPECT_EQ(LostHolderOf(restored), "");
  }
}

}  // namespace
}  // namespace sherd::testing
