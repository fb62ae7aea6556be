#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// The rules by which stored shards survive deaths (docs/adr/0009), shared by coordinator, workers
// and the model that checks them.

// A state of a job that is stored in parts: `step`, cut for a world of `world` ranks in `epoch`.
struct Version {
  int64_t epoch = 0;
  int world = 0;
  int64_t step = 0;
  friend bool operator==(const Version&, const Version&) = default;
};

Version VersionOf(const v1::Holding& holding);

// What ranks of a world hold: rank r holds part PartOf(r), and ranks with equal parts hold copies
// of the same. `spec` is normalised and valid, `world` one of its worlds.
int PartsOf(const v1::JobSpec& spec, int world);
int PartOf(const v1::JobSpec& spec, int world, int rank);
int PartsOf(const v1::ParallelSpec& parallel, int world);
int PartOf(const v1::ParallelSpec& parallel, int world, int rank);

// How the versions of an epoch are cut; nullptr: nothing of it is known, so none of it is usable.
using LayoutOfEpoch = absl::FunctionRef<const v1::ParallelSpec*(int64_t epoch)>;

// What one living process holds.
struct Holder {
  std::string process;
  std::vector<v1::Holding> holdings;
};

// The version that training goes on after, out of what living processes hold: one that is whole,
// every part of it held by somebody. Versions of the epochs from `restored` on go before older
// ones; among them the one whose rarest part is in the most processes; among equals the newest by
// step, then by epoch. Nothing when no version is whole. `restored` is the newest epoch that all
// its ranks had restored: what is older was training's past already then.
std::optional<Version> ChooseVersion(const v1::JobSpec& spec, int64_t restored,
                                     absl::Span<const Holder> holders);
// The same of a job whose epochs are not all cut alike; tensor degrees are.
std::optional<Version> ChooseVersion(LayoutOfEpoch layouts, int64_t restored,
                                     absl::Span<const Holder> holders);

// The `restored` of ChooseVersion: `logged`, the newest epoch of which the log says so, or a later
// one that has trained. Its first update follows an exchange that each rank enters with its
// restored shard stored, so a step after the one that it went on after proves what its ranks could
// not say any more. Without that, copies of an older world that nobody has dropped yet would
// outnumber what was committed since. `starts`: the step that each epoch after `logged` went on
// after.
int64_t RestoredEpoch(int64_t logged, const std::map<int64_t, int64_t>& starts,
                      absl::Span<const Holder> holders);

// The parts of a version of `from` ranks that hold what rank `rank` of a world of `to` ranks will:
// ascending. The parts of worlds of equal size are the same.
std::vector<int> SourceParts(const v1::JobSpec& spec, int from, int to, int rank);
// The same of a version that is cut as `held` says, whose tensor degree is the specification's.
std::vector<int> SourceParts(const v1::ParallelSpec& held, const v1::JobSpec& spec, int from,
                             int to, int rank);

// Each rank has two places for versions of its shard and writes the next one where the newest
// version that is known whole is not: never by the step's number, which a restore may repeat.
inline int NextSlot(int newest_whole) { return 1 - newest_whole; }

}  // namespace sherd
