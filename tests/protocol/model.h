#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sherd/v1/job.pb.h"
#include "tests/protocol/explorer.h"
#include "tests/protocol/policy.h"
#include "tests/protocol/state.h"

namespace sherd::protocol {

// How large the world is, and what may go wrong in it, each so many times and at any instant.
struct Scenario {
  int processes = 2;
  int first_world = 2;
  int min_world = 1;
  int max_world = 2;
  int steps = 2;
  // Every process is a shared-memory domain of its own: holders have copies instead of the memory.
  bool remote = false;
  // Every epoch makes memory of its own, also where a rank has its parts in the memory of the one
  // before.
  bool anew = false;
  // Processes end; are given up although they go on; epochs end without a loss; the coordinator
  // ends and comes back.
  int deaths = 0;
  int freezes = 0;
  int ends = 0;
  int crashes = 0;
  // Who may be lost.
  Mask mortal = 0xff;
  // How many losses at once must not cost a step.
  int promised = 1;
  // Looks only for lost steps of which the coordinator could hear: from a rank of the newest epoch
  // that it has not given up.
  bool heard_only = false;
};

// The protocol of docs/adr/0009, for a job that cuts its state into as many parts as it has ranks.
class ProtocolModel {
 public:
  ProtocolModel(const Scenario& scenario, const Policy& policy);

  State Initial() const;
  void Next(const State& state, Moves<State>& moves) const;
  std::string Violation(const State& state) const;
  bool Ended(const State& state) const;
  std::string Show(const State& state) const;

 private:
  // worker_moves.cc: what process `p` can do.
  void MoveWorker(const State& state, int p, Moves<State>& moves) const;
  void ReadMail(const State& state, int p, Moves<State>& moves) const;
  void Answer(State& next, int p) const;

  // restore_moves.cc
  void Restore(const State& state, int p, Moves<State>& moves) const;
  void RestoreInPlace(const State& state, int p, State& next, Segment& own,
                      Moves<State>& moves) const;
  void ReadParts(const State& state, int p, Moves<State>& moves) const;
  void FinishRestoring(const State& state, int p, Moves<State>& moves) const;
  void HandOver(const State& state, int p, Moves<State>& moves) const;

  // train_moves.cc
  bool StopAtFence(const State& state, int p, Moves<State>& moves) const;
  void LeaveExchange(const State& state, int p, Moves<State>& moves) const;
  void BeginUpdate(const State& state, int p, Moves<State>& moves) const;
  void FinishUpdate(const State& state, int p, Moves<State>& moves) const;
  void Commit(State& next, int p) const;
  void SendCopy(State& next, int p) const;
  void ReceiveCopy(const State& state, int p, Moves<State>& moves) const;

  // coordinator_moves.cc
  void MoveCoordinator(const State& state, Moves<State>& moves) const;
  void HearOfRank(const State& state, int rank, Moves<State>& moves) const;
  Mask NamedBy(const Coordinator& coordinator) const;
  void SendAll(State& next) const;
  void EndEpoch(State& next) const;
  void GiveUp(State& next, int p) const;
  // Everybody whom the coordinator does not think lost.
  Mask Present(const Coordinator& coordinator) const;

  // plan_moves.cc: the next epoch.
  void Plan(const State& state, Moves<State>& moves) const;
  bool CanPlan(const State& state) const;
  Version Choose(const State& state) const;
  std::vector<Holder> HoldersOf(const Coordinator& log) const;
  void FillWorld(State& next) const;
  void FillSources(State& next, const Version& version) const;
  void JudgeChoice(State& next) const;

  // environment_moves.cc
  void MoveEnvironment(const State& state, Moves<State>& moves) const;
  // Brings states that nothing in the model can tell apart to one form.
  void Normalize(State& state) const;

  void Add(const State& state, State& next, bool fault, absl::FunctionRef<std::string()> text,
           Moves<State>& moves) const;

  const Scenario scenario_;
  const Policy policy_;
  const v1::JobSpec spec_;
  // What was chosen before, by all that the choice depends on.
  mutable absl::flat_hash_map<std::string, Version> choices_;
};

}  // namespace sherd::protocol
