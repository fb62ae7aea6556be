// The executor against a communicator that is as late as it may be: an operation moves its data
// only when somebody waits for it or for a later one.
#include "worker/train/step_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_ops.h"
#include "plan/ledger.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

struct Range {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;

  bool Overlaps(const Range& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
  size_t Hash() const {
    return absl::HashOf(
        absl::string_view(reinterpret_cast<const char*>(begin), static_cast<size_t>(bytes)));
  }
};

// One rank of a group whose other ranks send just what this one sends; sums are of floats.
class LateCommunicator final : public Communicator {
 public:
  LateCommunicator(int rank, int size, int64_t arena_bytes)
      : rank_(rank), size_(size), arena_(meter_, Pool::kComm, arena_bytes) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::string_view transport() const override { return "shm"; }
  std::byte* arena() const override { return arena_.data(); }
  int64_t arena_bytes() const override { return arena_.bytes(); }
  int64_t control_bytes() const override { return 0; }

  Ticket AllGather(const void* shard, void* gathered, int64_t bytes) override {
    const Range from = InArena(shard, bytes);
    auto* const to = static_cast<std::byte*>(gathered);
    // In place, the own shard is both.
    const bool in_place = from.begin == to + rank_ * bytes;
    return Enqueue(Collective::kAllGather, from, {to, size_ * bytes}, [=, this] {
      for (int rank = 0; rank < size_; ++rank) {
        if (in_place && rank == rank_) continue;
        std::memcpy(to + rank * bytes, from.begin, static_cast<size_t>(bytes));
      }
    });
  }
  Ticket ReduceScatter(const void* input, int contributors, TreeAccumulator* into) override {
    const int64_t bytes = into->elements() * SizeOf(into->dtype());
    const Range from = InArena(input, size_ * bytes);
    return Enqueue(Collective::kReduceScatter, from, {}, [=, this] {
      into->Fold(
          std::vector<const void*>(static_cast<size_t>(contributors), from.begin + rank_ * bytes));
    });
  }
  Ticket ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments, DType dtype,
                              int contributors) override {
    std::vector<int64_t> owned(segments.begin(), segments.end());
    const Range range =
        InArena(data, std::accumulate(owned.begin(), owned.end(), int64_t{0}) * SizeOf(dtype));
    auto* const values = static_cast<float*>(data);
    return Enqueue(Collective::kReduceScatter, range, range, [=, this] {
      int64_t begin = 0;
      for (const int64_t segment : owned) {
        const int64_t part = segment / size_;
        for (int64_t i = 0; i < part; ++i) {
          values[begin + rank_ * part + i] *= static_cast<float>(contributors);
        }
        begin += segment;
      }
    });
  }
  Ticket AllReduce(void* data, int64_t elements, DType dtype, int contributors) override {
    const Range range = InArena(data, elements * SizeOf(dtype));
    auto* const values = static_cast<float*>(data);
    return Enqueue(Collective::kAllReduce, range, range, [=] {
      for (int64_t i = 0; i < elements; ++i) values[i] *= static_cast<float>(contributors);
    });
  }
  Ticket Broadcast(void*, int64_t, int) override { return Enqueue(Collective::kBroadcast); }
  Ticket Barrier() override { return Enqueue(Collective::kBarrier); }
  Ticket Exchange(const void* record, void* records, int64_t bytes) override {
    for (int rank = 0; rank < size_; ++rank) {
      std::memcpy(static_cast<std::byte*>(records) + rank * bytes, record,
                  static_cast<size_t>(bytes));
    }
    return Enqueue(Collective::kExchange);
  }

  absl::Status Wait(Ticket ticket) override {
    for (; completed_ < ticket; ++completed_) {
      const Operation& operation = operations_[completed_];
      // F8: nobody wrote to what others were reading.
      EXPECT_EQ(operation.read.Hash(), operation.hash) << NameOf(operation.collective);
      operation.move();
    }
    return absl::OkStatus();
  }
  void Abort(absl::string_view) override {}
  absl::Status status() const override { return absl::OkStatus(); }
  WireCounts counts() const override { return {}; }
  int ended_by() const override { return -1; }
  std::vector<int> missing() const override { return {}; }

  // F8: what the caller may not do while operations are under way.
  void ExpectReadable(const Range& range, const std::string& what) const {
    ForEachPending([&](const Operation& operation) {
      EXPECT_FALSE(operation.written.Overlaps(range)) << what << " reads what arrives later";
    });
  }
  void ExpectWritable(const Range& range, const std::string& what) const {
    ForEachPending([&](const Operation& operation) {
      EXPECT_FALSE(operation.read.Overlaps(range)) << what << " writes what others read";
      EXPECT_FALSE(operation.written.Overlaps(range)) << what << " writes what arrives later";
    });
  }
  int Pending(Collective collective) const {
    int count = 0;
    ForEachPending([&](const Operation& operation) {
      if (operation.collective == collective) ++count;
    });
    return count;
  }

 private:
  struct Operation {
    Collective collective;
    Range read;
    Range written;
    std::function<void()> move;
    size_t hash;
  };

  Range InArena(const void* data, int64_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(data);
    EXPECT_TRUE(bytes == 0 ||
                (begin >= arena_.data() && begin + bytes <= arena_.data() + arena_.bytes()));
    return {begin, bytes};
  }
  Ticket Enqueue(
      Collective collective, Range read = {}, Range written = {},
      std::function<void()> move = [] {}) {
    ExpectReadable(read, absl::StrCat("a later ", std::string(NameOf(collective))));
    operations_.push_back({collective, read, written, std::move(move), read.Hash()});
    return operations_.size();
  }
  void ForEachPending(const std::function<void(const Operation&)>& visit) const {
    for (size_t at = completed_; at < operations_.size(); ++at) visit(operations_[at]);
  }

  const int rank_;
  const int size_;
  MemoryMeter meter_;
  Buffer arena_;
  std::vector<Operation> operations_;
  size_t completed_ = 0;
};

// What a run told: what was under way when a unit computed, and where its blocks lay.
struct Observed {
  int forwards_beside_gathers = 0;
  int backwards_beside_gathers = 0;
  int backwards_beside_reductions = 0;
  std::set<const void*> block_params;
  std::set<const void*> block_grads;
  std::vector<double> norms;
  // AdamW's, of the first block's first element after the first step.
  double first_moment = 0;
};

// What the model makes up, and what comes of the first step with it.
struct Figures {
  double loss = 1;
  float gradient_scale = 1;
  absl::StatusCode outcome = absl::StatusCode::kOk;
  // The first step's loss is no number at first, and it is trained again.
  bool diverges_once = false;
};

// Touches what a model touches, and checks that it may.
class TouchingModel final : public Model {
 public:
  TouchingModel(const RankPlan& plan, const LateCommunicator& comm, const Figures& figures)
      : plan_(plan), comm_(comm), figures_(figures) {}

  void Forward(int unit, absl::Span<const UnitParams> params, const MicroBatch&) override {
    ReadParams(unit, params, absl::StrCat("the forward of unit ", unit));
    if (comm_.Pending(Collective::kAllGather) > 0) ++observed_.forwards_beside_gathers;
  }
  double Loss(absl::Span<const UnitParams>, const MicroBatch&) override { return 1; }
  double Backward(int unit, absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                  const MicroBatch&, float) override {
    const std::string what = absl::StrCat("the backward of unit ", unit);
    // The embedding's reads no parameters.
    if (unit != 0) ReadParams(unit, params, what);
    WriteGrads(unit, grads, what);
    if (IsTiedHead(unit)) WriteGrads(0, grads, what);
    if (comm_.Pending(Collective::kAllGather) > 0) ++observed_.backwards_beside_gathers;
    if (comm_.Pending(Collective::kReduceScatter) + comm_.Pending(Collective::kAllReduce) > 0) {
      ++observed_.backwards_beside_reductions;
    }
    if (IsHead(unit) && figures_.diverges_once && !diverged_) {
      diverged_ = true;
      return std::numeric_limits<double>::quiet_NaN();
    }
    return IsHead(unit) ? figures_.loss : 0;
  }
  const float* Logits(absl::Span<const UnitParams>, int64_t, int64_t) override { return nullptr; }

  const Observed& observed() const { return observed_; }
  // The next walk writes the gradients of the first.
  void Restart() { calls_ = 0; }

 private:
  bool IsHead(int unit) const { return unit + 1 == static_cast<int>(plan_.inventory.units.size()); }
  bool IsTiedHead(int unit) const { return plan_.inventory.tied && IsHead(unit); }
  int64_t Elements(int unit) const {
    return plan_.layout.units[static_cast<size_t>(unit)].elements;
  }
  bool IsBlock(int unit) const {
    return plan_.inventory.units[static_cast<size_t>(unit)].kind == UnitKind::kBlock;
  }
  void ReadParams(int unit, absl::Span<const UnitParams> params, const std::string& what) {
    if (IsBlock(unit)) observed_.block_params.insert(params[static_cast<size_t>(unit)].data);
    for (const int each : {unit, IsTiedHead(unit) ? 0 : unit}) {
      const UnitParams& read = params[static_cast<size_t>(each)];
      ASSERT_NE(read.data, nullptr) << what;
      comm_.ExpectReadable(
          {static_cast<const std::byte*>(read.data), Elements(each) * SizeOf(read.dtype)}, what);
    }
  }
  void WriteGrads(int unit, absl::Span<const UnitGrads> grads, const std::string& what) {
    const UnitGrads& written = grads[static_cast<size_t>(unit)];
    ASSERT_NE(written.data, nullptr) << what;
    auto* const begin = static_cast<std::byte*>(written.data);
    const int64_t bytes = Elements(unit) * SizeOf(written.dtype);
    comm_.ExpectWritable({begin, bytes}, what);
    if (IsBlock(unit)) observed_.block_grads.insert(begin);
    // Small whole numbers, whose sums are exact in any order; different from call to call.
    std::fill_n(reinterpret_cast<float*>(begin), Elements(unit),
                figures_.gradient_scale * static_cast<float>(++calls_ % 8 + 1));
  }

  const RankPlan& plan_;
  const LateCommunicator& comm_;
  const Figures figures_;
  Observed observed_;
  int calls_ = 0;
  bool diverged_ = false;
};

class NoText final : public BatchSource {
 public:
  absl::Status ReadTrain(int64_t, int64_t, int32_t*, int32_t* targets) override {
    targets[0] = 1;
    return absl::OkStatus();
  }
  int64_t TrainTargets(int64_t) override { return 1; }
  absl::Status ReadEval(int64_t, int32_t*, int32_t*) override { return absl::OkStatus(); }
};

RankMesh::Axis LateAxis(int place, int size, int64_t arena_bytes) {
  RankMesh::Axis axis;
  axis.comm = std::make_unique<LateCommunicator>(place, size, arena_bytes);
  axis.ranks.resize(static_cast<size_t>(size));
  std::iota(axis.ranks.begin(), axis.ranks.end(), 0);
  return axis;
}

// Until it is settled, what was gathered after the update may still be under way.
void ExpectNothingPending(const Communicator* comm, bool settled, int64_t step) {
  if (comm == nullptr) return;
  for (int op = 0; op < kCollectives; ++op) {
    const auto collective = static_cast<Collective>(op);
    if (!settled && collective == Collective::kAllGather) continue;
    EXPECT_EQ(static_cast<const LateCommunicator*>(comm)->Pending(collective), 0)
        << NameOf(collective) << " after step " << step;
  }
}

// Or one that does not come out well.
Observed TwoSteps(const v1::JobSpec& spec, int rank, int degree, const Figures& made_up = {}) {
  const RankPlan plan = BuildRankPlan(spec, rank, degree);
  const int sharers = plan.layout.degree;
  RankMesh::Axes axes;
  axes.sharers = LateAxis(rank % sharers, sharers, ArenaBytes(plan));
  if (plan.AddsReplicas()) {
    axes.replicas = LateAxis(rank / sharers, degree / sharers, ReplicaArenaBytes(plan));
  }
  RankArenas arenas{.sharers = axes.sharers.comm->arena()};
  if (plan.AddsReplicas()) arenas.replicas = axes.replicas.comm->arena();
  RankMesh mesh(std::move(axes));
  MemoryMeter meter;
  RankMemory memory(plan, arenas, VersionSlots{}, meter);
  StepCommits commits(/*segment=*/nullptr, nullptr);
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  TouchingModel model(plan, static_cast<LateCommunicator&>(mesh.sharers()), made_up);
  NoText text;
  HostDevice device;
  StepExecutor executor(plan, spec, *ops, model, /*tensor=*/nullptr, mesh, memory, commits, text,
                        meter, device);
  std::vector<double> norms;
  double first_moment = 0;
  for (const int64_t step : {1, 2}) {
    absl::StatusOr<StepFigures> figures = executor.Train(step);
    EXPECT_EQ(executor.diverged(), absl::IsDataLoss(figures.status()));
    if (made_up.diverges_once && step == 1) {
      EXPECT_TRUE(executor.diverged());
      model.Restart();
      figures = executor.Train(step, step + 1);
    }
    EXPECT_EQ(figures.status().code(), made_up.outcome) << figures.status();
    if (figures.ok()) norms.push_back(figures->grad_norm);
    if (step == 1) first_moment = memory.unit(1).state.m[0];
    if (!figures.ok()) break;
    const bool settled = step == 2;
    if (settled) {
      EXPECT_TRUE(executor.Settle().ok());
    }
    ExpectNothingPending(&mesh.sharers(), settled, step);
    ExpectNothingPending(mesh.replicas(), settled, step);
  }
  Observed observed = model.observed();
  observed.norms = std::move(norms);
  observed.first_moment = first_moment;
  return observed;
}

// F8: with every strategy, schedule and bucket size, on the first and the last rank.
TEST(StepExecutor, TouchesNoBufferThatACollectiveStillUses) {
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    for (const int64_t rounds : {1, 3}) {
      for (const int64_t prefetch : {0, 1, 2, 5}) {
        for (const bool tied : {true, false}) {
          v1::JobSpec spec = testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4 * rounds,
                                              {.layers = 5, .hidden = 16});
          spec.mutable_parallel()->set_prefetch(prefetch);
          spec.mutable_parallel()->set_bucket_mb(rounds == 1 ? 0 : 25);
          spec.mutable_model()->set_tie_embeddings(tied);
          SCOPED_TRACE(absl::StrCat(strategy, " rounds ", rounds, " prefetch ", prefetch));
          for (const int rank : {0, 3}) TwoSteps(spec, rank, 4);
        }
      }
    }
  }
}

// F8: gradients that nobody reduces leave no buffer behind, and take none that is read.
TEST(StepExecutor, TouchesNoBufferThatIsUsedBesideFrozenUnits) {
  const std::vector<std::vector<std::string>> frozen = {
      {"h.1.*", "h.3.*"}, {"w*", "h.0.*", "h.2.*", "h.3.*"}, {"h.0.*", "h.4.*", "ln_f.*"}};
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    for (const int64_t rounds : {1, 3}) {
      for (const std::vector<std::string>& patterns : frozen) {
        v1::JobSpec spec =
            testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4 * rounds, {.layers = 5, .hidden = 16});
        spec.mutable_train()->mutable_freeze()->Assign(patterns.begin(), patterns.end());
        spec.mutable_parallel()->set_bucket_mb(rounds == 1 ? 25 : 0);
        SCOPED_TRACE(absl::StrCat(strategy, " rounds ", rounds, " without ", patterns.front()));
        for (const int rank : {0, 3}) TwoSteps(spec, rank, 4);
      }
    }
  }
}

// F8: what is counted and updated is what was summed, never what was there before. Every rank sends
// the same whole numbers, so all strategies have one norm, to the bit.
TEST(StepExecutor, CountsWhatWasReduced) {
  for (const int64_t rounds : {1, 4}) {
    for (const int64_t bucket_mb : {0, 25}) {
      std::vector<double> norms;
      for (const absl::string_view strategy : testing::kStrategies) {
        v1::JobSpec spec =
            testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4 * rounds, {.layers = 5, .hidden = 16});
        spec.mutable_parallel()->set_bucket_mb(bucket_mb);
        const Observed observed = TwoSteps(spec, 0, 4);
        ASSERT_EQ(observed.norms.size(), 2u);
        if (norms.empty()) norms = observed.norms;
        EXPECT_EQ(observed.norms, norms) << strategy << " rounds " << rounds;
      }
      // Four ranks' gradients, each at least 1: their sums' norm is at least that of fours.
      const int64_t elements =
          BuildRankPlan(testing::MakeJob("ddp", v1::DATA_TYPE_FP32, 4, {.layers = 5, .hidden = 16}),
                        0, 1)
              .inventory.elements;
      EXPECT_GE(norms[0], 4.0 * std::sqrt(static_cast<double>(elements)) * 0.9);
    }
  }
}

// F1, F8: what is updated is the sum over all ranks and rounds; under hybrid sharding shards are
// summed over the replicas only once all of their own replica's gradients are in them.
TEST(StepExecutor, UpdatesWithTheSumOfAllGradients) {
  for (const int64_t rounds : {1, 4}) {
    const auto train = [&](absl::string_view strategy, int ranks) {
      v1::JobSpec spec = testing::MakeJob(strategy, v1::DATA_TYPE_FP32, ranks * rounds,
                                          {.layers = 5, .hidden = 16});
      spec.mutable_train()->set_grad_clip(0);
      return TwoSteps(spec, 0, ranks);
    };
    const Observed alone = train("ddp", 1);
    EXPECT_GT(alone.first_moment, 0);
    for (const absl::string_view strategy : testing::StrategiesOf(4)) {
      const Observed shared = train(strategy, 4);
      EXPECT_EQ(shared.first_moment, 4 * alone.first_moment) << strategy << " rounds " << rounds;
      // All four records are rank 0's: four times a quarter of the gradients, or a half under
      // hybrid sharding. The first part is never the smallest.
      const double counted = strategy == "hybrid 2" ? std::sqrt(2.0) : 1;
      EXPECT_NEAR(shared.norms[0], 4 * counted * alone.norms[0], 0.02 * shared.norms[0])
          << strategy << " rounds " << rounds;
    }
  }
}

// Section 4: min(1, clip / (norm + 1e-6)), also where the norm is so small that the addend tells.
TEST(StepExecutor, ClipsByTheCoefficientOfTheNorm) {
  const auto step = [](float gradient_scale, double clip) {
    v1::JobSpec spec =
        testing::MakeJob("zero2", v1::DATA_TYPE_FP32, 2, {.layers = 5, .hidden = 16});
    spec.mutable_train()->set_grad_clip(clip);
    return TwoSteps(spec, 0, 2, {.gradient_scale = gradient_scale});
  };
  for (const float gradient_scale : {1.0f, 1e-9f}) {
    const Observed unclipped = step(gradient_scale, 0);
    const double norm = unclipped.norms[0];
    for (const double part : {0.2, 0.9, 1.5, 30.0}) {
      const double coefficient = std::min(1.0, part * norm / (norm + 1e-6));
      EXPECT_NEAR(step(gradient_scale, part * norm).first_moment / unclipped.first_moment,
                  coefficient, 1e-6 * coefficient)
          << "a clip of " << part << " norms of " << norm;
    }
  }
}

// F15: either of loss and norm is enough, and nothing is updated.
TEST(StepExecutor, UpdatesNothingWhenLossOrNormIsNoNumber) {
  constexpr auto kInfinite = std::numeric_limits<float>::infinity();
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    const v1::JobSpec spec =
        testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4, {.layers = 5, .hidden = 16});
    for (const Figures& figures :
         {Figures{.gradient_scale = kInfinite, .outcome = absl::StatusCode::kDataLoss},
          Figures{.loss = kInfinite, .outcome = absl::StatusCode::kDataLoss}}) {
      EXPECT_EQ(TwoSteps(spec, 0, 4, figures).first_moment, 0) << strategy;
    }
  }
}

// F17: no room is taken that the step does without.
TEST(StepExecutor, UsesEveryRoomForUnitsThatIsPlanned) {
  for (const absl::string_view strategy : {"zero2", "zero3", "zero3 kept"}) {
    for (const int64_t prefetch : {0, 1, 2, 3}) {
      v1::JobSpec spec =
          testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 3, {.layers = 5, .hidden = 16});
      spec.mutable_parallel()->set_prefetch(prefetch);
      const Observed observed = TwoSteps(spec, 0, 3);
      const RankPlan plan = BuildRankPlan(spec, 0, 3);
      EXPECT_EQ(static_cast<int64_t>(observed.block_grads.size()), GradientSlots(plan));
      if (strategy == "zero2") continue;
      EXPECT_EQ(static_cast<int>(observed.block_params.size()),
                MaxGatheredBlocks(plan.step, plan.inventory))
          << strategy << " prefetch " << prefetch;
    }
  }
}

// F15: a step that was not to be updated with leaves nothing behind: trained again, it is as if it
// had been trained once.
TEST(StepExecutor, TrainsAStepAgainAfterALossThatIsNoNumber) {
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    SCOPED_TRACE(strategy);
    const v1::JobSpec spec =
        testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 12, {.layers = 3, .hidden = 16});
    const Observed undisturbed = TwoSteps(spec, 1, 4);
    const Observed repeated = TwoSteps(spec, 1, 4, {.diverges_once = true});
    EXPECT_EQ(repeated.norms, undisturbed.norms);
    EXPECT_EQ(repeated.first_moment, undisturbed.first_moment);
  }
}

// F9: reductions go on beside the next backward, gathers beside the computation before the one that
// needs them. Seven units, two steps.
TEST(StepExecutor, ComputesWhileCollectivesAreUnderWay) {
  const auto overlap = [](absl::string_view strategy, int64_t prefetch) {
    v1::JobSpec spec =
        testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 3, {.layers = 5, .hidden = 16});
    spec.mutable_parallel()->set_prefetch(prefetch);
    return TwoSteps(spec, 1, 3);
  };
  for (const absl::string_view strategy : testing::kStrategies) {
    // All but the head's, which is the first.
    EXPECT_EQ(overlap(strategy, 1).backwards_beside_reductions, 2 * 6) << strategy;
  }
  // All but the head's, with which the last gather ends.
  EXPECT_EQ(overlap("zero3", 1).forwards_beside_gathers, 2 * 6);
  EXPECT_EQ(overlap("zero3", 0).forwards_beside_gathers, 0);
  // The second step's forwards run beside the gathers that follow the first one's update.
  EXPECT_EQ(overlap("zero1", 1).forwards_beside_gathers, 6);
  EXPECT_EQ(overlap("zero2", 1).forwards_beside_gathers, 6);
  // Blocks 4…1 are gathered ahead of their backward, beside the head's and those of 4…2; block 0's
  // beside that of 1.
  EXPECT_EQ(overlap("zero3", 1).backwards_beside_gathers, 2 * 5);
  EXPECT_EQ(overlap("zero3", 0).backwards_beside_gathers, 0);
}

}  // namespace
}  // namespace sherd
