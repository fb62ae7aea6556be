#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/chance.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/referee.h"
#include "tests/simulation/trace.h"

namespace sherd::simulation {

class CoordinatorHost;
class FakeRank;
class WorkerProcess;

// A rule that is broken on purpose, to see that it is noticed.
enum class Planted {
  kNone,
  // Nobody fences a segment, or refuses one of a sealed epoch.
  kNoFences,
  // A rank enters an exchange before its step is stored.
  kEarlyExchange,
  // A coordinator that ends loses the last batch that it had told of.
  kLostBatch,
  // A worker that says hello again has forgotten which rank it is.
  kForgottenRank,
};

struct Options {
  uint64_t seed = 1;
  bool trace = false;
  Planted planted = Planted::kNone;
};

// What the parts of one schedule have in common.
struct Cluster {
  explicit Cluster(const Options& chosen)
      : options(chosen), chance(chosen.seed), trace(queue, chosen.trace), referee(trace) {}

  // A message on its way: mostly short, now and then long.
  absl::Duration Delay() {
    return chance.OneIn(40) ? chance.Milliseconds(5, 150) : chance.Milliseconds(0, 3);
  }

  const Options options;
  EventQueue queue;
  Chance chance;
  Trace trace;
  Referee referee;
  CoordinatorHost* coordinator = nullptr;
  // All there ever were, by address.
  std::map<std::string, WorkerProcess*> processes;
  // By name: who is cut off for good from a process on another host, to store copies there.
  std::set<std::pair<std::string, std::string>> cut;
  // The ranks of an epoch that work, by rank.
  struct World {
    std::map<int, FakeRank*> ranks;
    // By number of the exchange: who has entered, and whether one of them wants to pause.
    struct Exchange {
      uint64_t entered = 0;
      bool pause = false;
    };
    std::map<int64_t, Exchange> exchanges;
    uint64_t joined = 0;
  };
  std::map<std::pair<std::string, int64_t>, World> worlds;
};

}  // namespace sherd::simulation
