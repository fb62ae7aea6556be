#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "coordinator/core/state.h"
#include "coordinator/store/event_log.h"
#include "tests/simulation/holdings.h"
#include "tests/simulation/trace.h"

namespace sherd::simulation {

// Sees all that truly happens, wherever it does, and says what must not.
class Referee {
 public:
  explicit Referee(Trace& trace) : trace_(trace) {}

  // The first thing that must not happen, as a sentence.
  const std::optional<std::string>& verdict() const { return verdict_; }
  void Accuse(std::string sentence);

  // ---- Of ranks.
  void Began(const std::string& job, int64_t epoch, int rank, uint64_t life);
  void Ended(const std::string& job, int64_t epoch, int rank, uint64_t life);
  // The rank stores this under the name of its epoch and step; before it is marked whole.
  void Stores(const std::string& job, int64_t epoch, const Lineage& lineage);
  // It is saved as a checkpoint.
  void Saves(const std::string& job, const std::string& path, const Lineage& lineage);
  // What a checkpoint holds.
  const Lineage& Saved(const std::string& job, const std::string& path) const {
    return checkpoints_.at({job, path});
  }
  // The rank goes on after this, and whoever is to hold its shard does.
  void IsReady(const std::string& job, int64_t epoch, int rank, const Lineage& lineage);
  // The rank came back from the exchange after the step.
  void Commits(const std::string& job, int64_t epoch, const Lineage& lineage);

  // Nothing happens in this schedule that may cost a step that the feed has told.
  void ForbidRollbacks() { forbids_rollbacks_ = true; }

  // ---- Of lives: one has ended, or was given up.
  void IsLost(uint64_t life);

  // ---- Of the coordinator: a batch is stored; then what it knows for certain.
  void SeeBatch(const LogBatch& batch);
  void SeeState(const State& state);
  // The last of a schedule.
  void SeeEnd(const State& state);

  // So many lives were lost, and epochs planned.
  int64_t losses() const { return static_cast<int64_t>(lost_.size()); }
  int64_t epochs() const { return epochs_; }
  int64_t rollbacks() const { return rollbacks_; }
  int64_t committed() const { return committed_; }

 private:
  struct Job {
    int64_t epoch = 0;
    int world = 0;
    int64_t promised = 0;        // losses that the newest epoch that was ready survives
    std::set<uint64_t> named;    // lives that it, or one planned after it, named
    std::set<uint64_t> current;  // of the newest epoch
    std::set<int> ready;         // its ranks
    std::set<uint64_t> missing;  // of `named`, lost since
    Lineage committed;
    int64_t went_on_after = 0;
    // Epochs before this one were planned away by more losses than were promised for.
    int64_t forgiven_before = 0;
    int64_t feed_sequence = 0;
    int64_t feed_step = 0;
    bool done = false;
  };

  void SeeFeed(const v1::JobEvent& entry);
  void SeePlan(Job& job, const JobRecord& record);

  Trace& trace_;
  std::optional<std::string> verdict_;
  std::map<std::string, Job> jobs_;
  std::map<std::tuple<std::string, int64_t, int>, uint64_t> working_;
  std::map<uint64_t, std::string> busy_;
  std::map<std::tuple<std::string, int64_t, int64_t>, Lineage> versions_;
  std::map<std::pair<std::string, int64_t>, Lineage> restored_;
  std::map<std::pair<std::string, std::string>, Lineage> checkpoints_;
  std::set<uint64_t> lost_;
  bool forbids_rollbacks_ = false;
  int64_t epochs_ = 0;
  int64_t rollbacks_ = 0;
  int64_t committed_ = 0;
};

}  // namespace sherd::simulation
