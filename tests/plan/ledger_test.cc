#include "plan/ledger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using testing::JobShape;
using testing::kStrategies;
using testing::MakeJob;

int64_t Predicted(const v1::RankLedger& ledger, const char* pool) {
  return ledger.memory().at(pool).predicted();
}

int64_t StateBytes(const v1::RankLedger& ledger) {
  return Predicted(ledger, "params") + Predicted(ledger, "grads") + Predicted(ledger, "optimizer");
}

v1::RankLedger LedgerOf(const v1::JobSpec& spec, int rank, int degree) {
  return PredictLedger(BuildRankPlan(spec, rank, degree), spec);
}

// Bytes a parameter that every rank holds whole, and that the ranks share, by strategy: the table
// of section 3.
struct StateBytesAParameter {
  int64_t whole;
  int64_t shared;
};
StateBytesAParameter TableRow(absl::string_view strategy, v1::DataType type) {
  const bool bf16 = type == v1::DATA_TYPE_BF16;
  if (strategy == "ddp") return {16, 0};
  if (strategy == "zero1" || strategy == "zero1 all_reduce") {
    return bf16 ? StateBytesAParameter{4, 12} : StateBytesAParameter{8, 8};
  }
  if (strategy == "zero2") {
    return bf16 ? StateBytesAParameter{2, 14} : StateBytesAParameter{4, 12};
  }
  return {0, 16};
}

// A member of a group over TCP holds room for a piece from each other member; nothing else depends
// on it.
TEST(Ledger, CountsWhatEachGroupsMediumHolds) {
  const auto comm = [](absl::string_view strategy, int degree, const GroupMedia& media) {
    const v1::JobSpec spec = MakeJob(strategy, v1::DATA_TYPE_BF16, 8, {});
    const RankPlan plan = BuildRankPlan(spec, 0, degree);
    const v1::RankLedger tcp = PredictLedger(plan, spec, 1, media);
    const v1::RankLedger shm = PredictLedger(plan, spec, 1);
    EXPECT_EQ(Predicted(tcp, "peak") - Predicted(tcp, "comm"),
              Predicted(shm, "peak") - Predicted(shm, "comm"));
    return Predicted(tcp, "comm");
  };
  EXPECT_EQ(comm("zero3", 5, {}), kShmControlBytes);
  EXPECT_EQ(comm("zero3", 5, {.sharers = Medium::kTcp}), 4 * kTcpStagingBytes);
  EXPECT_EQ(comm("ddp", 8, {.sharers = Medium::kTcp}), 7 * kTcpStagingBytes);
  EXPECT_EQ(comm("hybrid 2", 8, {}), 2 * kShmControlBytes);
  EXPECT_EQ(comm("hybrid 2", 8, {.replicas = Medium::kTcp}),
            kShmControlBytes + 3 * kTcpStagingBytes);
  EXPECT_EQ(comm("hybrid 2", 8, {.sharers = Medium::kTcp, .replicas = Medium::kTcp}),
            (1 + 3) * kTcpStagingBytes);
  EXPECT_EQ(comm("zero3", 5, {.sharers = Medium::kNccl}), 4 * kNcclStagingBytes);
}

// F10: exact also where sizes do not divide; padding is a line of its own. Over all ranks, what is
// shared adds up to one copy, to the byte.
TEST(Ledger, HoldsSixteenBytesAParameterSplitAsTheStrategySays) {
  for (const v1::DataType type : {v1::DATA_TYPE_BF16, v1::DATA_TYPE_FP32}) {
    for (const absl::string_view strategy : kStrategies) {
      for (const int degree : {1, 2, 3, 7, 8}) {
        const v1::JobSpec spec = MakeJob(strategy, type, degree, {.hidden = 34, .ffn = 29});
        const int64_t n = BuildRankPlan(spec, 0, degree).inventory.elements;
        const StateBytesAParameter row = TableRow(strategy, type);
        int64_t all_ranks = 0;
        for (int rank = 0; rank < degree; ++rank) {
          all_ranks += StateBytes(LedgerOf(spec, rank, degree));
        }
        EXPECT_EQ(all_ranks, n * (row.whole * degree + row.shared))
            << strategy << " " << degree << " " << type;
        const int64_t first = StateBytes(LedgerOf(spec, 0, degree));
        const double even = static_cast<double>(n * row.shared) / degree;
        // Rank 0 is never short of elements: at most a line of padding a unit more than its part.
        EXPECT_GE(static_cast<double>(first), static_cast<double>(n * row.whole) + even);
        EXPECT_LE(static_cast<double>(first),
                  static_cast<double>(n * row.whole) + even + 5.0 * 16 * kShardAlignment);
      }
    }
  }
}

// The figures of section 3 as people know them: D = 8, bf16.
TEST(Ledger, GivesTheKnownFiguresForEightRanks) {
  const std::map<absl::string_view, double> figures = {
      {"ddp", 16}, {"zero1", 5.5}, {"zero2", 3.75}, {"zero3", 2}};
  for (const auto& [strategy, bytes] : figures) {
    const v1::JobSpec spec =
        MakeJob(strategy, v1::DATA_TYPE_BF16, 8, {.layers = 12, .hidden = 768, .heads = 12});
    const int64_t n = BuildRankPlan(spec, 0, 8).inventory.elements;
    EXPECT_NEAR(static_cast<double>(StateBytes(LedgerOf(spec, 0, 8))) / static_cast<double>(n),
                bytes, 0.001)
        << strategy;
  }
}

double WirePredicted(const v1::RankLedger& ledger) {
  return static_cast<double>(ledger.wire().at("total").bytes().predicted());
}

// The larger the model, the closer to section 3's wire bytes a step. What the head and the
// embedding save and the padding costs is below a hundredth here.
TEST(Ledger, SendsWhatTheTheorySays) {
  const int degree = 4;
  const JobShape shape{.layers = 48, .hidden = 256};
  for (const int64_t rounds : {1, 2, 5}) {
    const double a = static_cast<double>(rounds);
    const std::map<absl::string_view, double> in_r_s = {
        {"ddp", 2},       {"zero1", 2},     {"zero1 all_reduce", 3},
        {"zero2", a + 1}, {"zero3", 3 * a}, {"zero3 kept", 2 * a}};
    for (const auto& [strategy, times] : in_r_s) {
      const v1::JobSpec spec = MakeJob(strategy, v1::DATA_TYPE_BF16, rounds * degree, shape);
      const int64_t n = BuildRankPlan(spec, 0, degree).inventory.elements;
      const double r_s = 2.0 * static_cast<double>(n) * (degree - 1) / degree;
      EXPECT_NEAR(WirePredicted(LedgerOf(spec, 0, degree)) / (times * r_s), 1.0, 0.01)
          << rounds << " " << strategy;
    }
  }
}

// hybrid: 16N/K a rank, and on the wire 3A·S(K−1)/K + 2(R−1)/R·S/K.
TEST(Ledger, HybridHoldsAndSendsWhatTheTheorySays) {
  const int degree = 8;
  for (const int64_t shard_group : {2, 4}) {
    for (const int64_t rounds : {1, 3}) {
      v1::JobSpec spec =
          MakeJob("hybrid 2", v1::DATA_TYPE_BF16, rounds * degree, {.layers = 48, .hidden = 256});
      spec.mutable_parallel()->set_shard_group(shard_group);
      const int64_t n = BuildRankPlan(spec, 0, degree).inventory.elements;
      int64_t group_bytes = 0;
      for (int rank = 0; rank < shard_group; ++rank) {
        group_bytes += StateBytes(LedgerOf(spec, rank, degree));
        EXPECT_EQ(StateBytes(LedgerOf(spec, rank, degree)),
                  StateBytes(LedgerOf(spec, rank + static_cast<int>(shard_group), degree)));
      }
      EXPECT_EQ(group_bytes, 16 * n);
      const double s = 2.0 * static_cast<double>(n);
      const double k = static_cast<double>(shard_group);
      const double r = degree / k;
      const double expected =
          3.0 * static_cast<double>(rounds) * s * (k - 1) / k + 2 * (r - 1) / r * s / k;
      EXPECT_NEAR(WirePredicted(LedgerOf(spec, 5, degree)) / expected, 1.0, 0.01);
    }
  }
}

// F17: what is transient does not eat what sharding saves, in a model where states dominate.
TEST(Ledger, PeaksFallFromStageToStage) {
  for (const v1::DataType type : {v1::DATA_TYPE_BF16, v1::DATA_TYPE_FP32}) {
    int64_t above = INT64_MAX;
    for (const absl::string_view strategy : {"ddp", "zero1", "zero2", "zero3"}) {
      const v1::JobSpec spec = MakeJob(strategy, type, 4, {.layers = 24, .hidden = 512});
      const int64_t peak = Predicted(LedgerOf(spec, 0, 4), "peak");
      EXPECT_LT(peak, above) << strategy;
      above = peak;
    }
  }
}

// The bytes on the operations of the plan are those of the ledger; buckets change messages alone.
TEST(Ledger, BucketsChangeMessagesNotBytes) {
  for (const absl::string_view strategy : {"ddp", "zero1", "zero1 all_reduce"}) {
    v1::JobSpec spec = MakeJob(strategy, v1::DATA_TYPE_BF16, 7, {.layers = 9});
    std::map<int64_t, int64_t> messages;
    std::map<int64_t, int64_t> bytes;
    for (const int64_t bucket_mb : {0, 1, 25}) {
      spec.mutable_parallel()->set_bucket_mb(bucket_mb);
      const v1::WireLine total = LedgerOf(spec, 1, 3).wire().at("total");
      messages[bucket_mb] = total.messages().predicted();
      bytes[bucket_mb] = total.bytes().predicted();
    }
    EXPECT_EQ(bytes[0], bytes[25]);
    EXPECT_EQ(bytes[0], bytes[1]);
    EXPECT_GT(messages[0], messages[25]);
  }
}

}  // namespace
}  // namespace sherd
