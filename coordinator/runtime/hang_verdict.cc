#include "coordinator/runtime/hang_verdict.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

std::string RankOnWorker(const JobRecord& job, int rank) {
  return absl::StrCat("rank ", rank, " on worker ", job.ranks[rank].worker.value());
}

// The rank that the most ranks miss, of those that miss nobody themselves, if there are such; the
// lowest among equals; -1 when none is missed.
int MostMissed(const JobRecord& job, const std::map<int, v1::RankPosition>& positions) {
  std::vector<int> missed(job.ranks.size(), 0);
  for (const auto& [rank, position] : positions) {
    for (const int32_t other : position.missing()) {
      if (other >= 0 && other < static_cast<int32_t>(missed.size())) ++missed[other];
    }
  }
  for (const bool waits : {false, true}) {
    int most = -1;
    for (int rank = 0; rank < static_cast<int>(missed.size()); ++rank) {
      const auto own = positions.find(rank);
      const bool passes_on = own != positions.end() && own->second.missing_size() > 0;
      if (missed[rank] == 0 || passes_on != waits) continue;
      if (most < 0 || missed[rank] > missed[most]) most = rank;
    }
    if (most >= 0) return most;
  }
  return -1;
}

std::string Where(const v1::RankPosition& position) {
  return absl::StrCat("after step ", position.step(), " (",
                      position.operation().empty() ? "between operations" : position.operation(),
                      ")");
}

}  // namespace

HangVerdict JudgeHang(const JobRecord& job, const std::map<int, v1::RankPosition>& positions,
                      absl::Duration stalled) {
  const std::string since = absl::StrCat(
      "no step was completed for ", absl::FormatDuration(absl::Trunc(stalled, absl::Seconds(1))));
  for (const auto& [rank, position] : positions) {
    if (position.waiting()) continue;
    return {rank, absl::StrCat(RankOnWorker(job, rank), " hangs ", Where(position), ": ", since)};
  }
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    // Who has finished works on nothing.
    if (positions.contains(rank) || job.ranks[rank].left) continue;
    return {rank, absl::StrCat(RankOnWorker(job, rank), " does not say where it is: ", since)};
  }
  const int missed = MostMissed(job, positions);
  if (missed < 0) return {-1, absl::StrCat("every rank waits, and none can say for whom: ", since)};
  return {missed, absl::StrCat("the others wait for ", RankOnWorker(job, missed), ", which waits ",
                               Where(positions.at(missed)), ": ", since)};
}

}  // namespace sherd
