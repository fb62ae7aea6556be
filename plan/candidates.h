#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "plan/plan_report.h"
#include "plan/timeline.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// How a job of strategy auto may be laid out (docs/auto-strategy.md): the keys that its file leaves
// open, filled in.

// The world that it is laid out for.
struct CandidateWorld {
  int ranks = 1;
  // Degrees whose tensor-parallel groups, adjacent ranks, each lie in one shared-memory domain.
  std::vector<int64_t> tensor_degrees = {1};
  // Without any, everything fits.
  MemoryLimits limits = {};
};

// The specification with the candidate's keys in place of auto. Normalised.
v1::JobSpec WithCandidate(v1::JobSpec spec, const v1::Candidate& candidate);

// Some layout that every world allows, with the asked tensor degree: for a probe, which trains
// nothing.
v1::Candidate AnyCandidate(const v1::JobSpec& spec);

// What a rank's device and links do in a world cut up like this.
using CostOf = absl::FunctionRef<CostModel(const v1::ParallelSpec& parallel)>;

// Everything that a normalised and valid specification of strategy auto leaves open and the world
// allows: strategy and its settings, tensor degree, shard group, recomputation, micro-batch. What
// the job's file gives is kept. Micro-batches are divisors of the global batch up to 64 sequences,
// each at least half as large again as the one before. Where a world has one data-parallel rank
// there is nothing to shard, and ddp stands for all.
//
// Each has its predicted peak, whether that fits and a predicted step, and they come best first:
// those that fit before those that do not, then by the predicted step, then by peak, then as the
// strategies come in StrategyChoices() with hybrid last, smaller tensor degrees and shard groups
// first, without recomputation first, smaller micro-batches first. At most some dozens are kept,
// of every kind (SameKind) the best.
std::vector<v1::Candidate> ListCandidates(const v1::JobSpec& spec, const CandidateWorld& world,
                                          CostOf cost);

// The same strategy with the same settings, tensor degree and shard group: they differ in
// recomputation and micro-batch alone.
bool SameKind(const v1::Candidate& a, const v1::Candidate& b);
bool SameLayout(const v1::Candidate& a, const v1::Candidate& b);

// Which of `candidates` are worth a trial before the others, in order: of those that fit the best
// of each kind, at most `most`; then the next best of any.
std::vector<size_t> Shortlist(absl::Span<const v1::Candidate> candidates, size_t most);

// Of the same kind and recomputation as `candidates[of]` the next smaller and the next larger
// micro-batch that fit.
std::vector<size_t> Neighbours(absl::Span<const v1::Candidate> candidates, size_t of);

// "zero3 kept, tensor 2, recompute block, micro_batch 8": what tells it from others.
std::string NameOf(const v1::Candidate& candidate);

}  // namespace sherd
