#include "tests/worker/train/executed_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_ops.h"
#include "plan/ledger.h"
#include "tests/worker/train/late_communicator.h"
#include "worker/train/step_executor.h"

namespace sherd {
namespace {

// Touches what a model touches, and checks that it may.
class TouchingModel final : public Model {
 public:
  TouchingModel(const RankPlan& plan, const LateCommunicator& comm, const MadeUpFigures& figures)
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

  const ObservedSteps& observed() const { return observed_; }
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
  const MadeUpFigures figures_;
  ObservedSteps observed_;
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

}  // namespace

ObservedSteps TwoSteps(const v1::JobSpec& spec, int rank, int degree,
                       const MadeUpFigures& made_up) {
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
  ObservedSteps observed = model.observed();
  observed.norms = std::move(norms);
  observed.first_moment = first_moment;
  return observed;
}

}  // namespace sherd
