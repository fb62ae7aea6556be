#include "coordinator/core/broken_links.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/counted.h"

namespace sherd {
namespace {

// A death explains all that others saw; so does a session that broke.
bool IsExplained(const JobRecord& job, const std::vector<Complaint>& complaints) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [](const RankState& rank) { return rank.phase == RankPhase::kLost; }) ||
         std::any_of(complaints.begin(), complaints.end(),
                     [](const Complaint& complaint) { return complaint.rank == complaint.peer; });
}

void Exclude(Transition& transition, JobRecord& job, const WorkerId& worker,
             absl::string_view reason) {
  job.excluded.insert(worker);
  transition.Tell(job, absl::StrCat("worker ", worker.value(),
                                    " takes no part in this job any more, unless it is needed: ",
                                    reason, " while it was alive"));
}

int64_t BrokenLinksOf(const JobRecord& job, const WorkerId& worker) {
  return std::count_if(job.broken.begin(), job.broken.end(), [&](const Link& link) {
    return link.first == worker || link.second == worker;
  });
}

void AvoidLink(Transition& transition, JobRecord& job, const WorkerId& rank,
               const WorkerId& holder) {
  const bool again = !job.broken.insert({rank, holder}).second;
  const int64_t of_rank = BrokenLinksOf(job, rank);
  const int64_t of_holder = BrokenLinksOf(job, holder);
  if (again || of_rank > of_holder) {
    return Exclude(transition, job, rank, "it lost links to processes that hold shards");
  }
  if (of_holder > 1) {
    return Exclude(transition, job, holder, "ranks lost links to it, which was to hold shards");
  }
  transition.Tell(job, absl::StrCat("the link between ", rank.value(), " and ", holder.value(),
                                    " broke while both were alive: the one holds no shards for "
                                    "the other in this job any more"));
}

// The ranks that lost a process which stores their shard, or gives them one. A holder that knows
// already that the epoch is over closes its links; so of those that were not the first to complain,
// in this epoch, only whom others had to end with are believed.
std::set<int> LetDownByHolders(const std::vector<Complaint>& complaints) {
  std::set<int> let_down;
  for (size_t i = 0; i < complaints.size(); ++i) {
    const int rank = complaints[i].rank;
    const bool believed =
        i == 0 || std::any_of(complaints.begin(), complaints.end(),
                              [rank](const Complaint& other) { return other.peer == rank; });
    if (complaints[i].holder != WorkerId() && believed) let_down.insert(rank);
  }
  return let_down;
}

// The process that the epoch was planned with lives: not another that came in its place.
bool HasItsHolder(const State& state, const JobRecord& job, const WorkerId& holder) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [&](const RankState& rank) {
                       return rank.worker == holder && IsAlive(state, holder, rank.incarnation);
                     }) ||
         std::any_of(job.holders.begin(), job.holders.end(), [&](const CopyHolder& known) {
           return known.worker == holder && !known.returned &&
                  IsAlive(state, holder, known.incarnation);
         });
}

// A rank that failed by itself was heard after the first complaint. That explains what others saw
// of ranks and of its own process; not that who was heard first, when all were at work, lost
// another process.
void AvoidFirstLink(Transition& transition, JobRecord& job,
                    const std::vector<Complaint>& complaints) {
  if (job.end_kind != EndKind::kFailure || complaints.empty()) return;
  const Complaint& first = complaints.front();
  if (!HasItsHolder(transition.state(), job, first.holder)) return;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const bool by_itself =
        job.ranks[rank].phase == RankPhase::kFailed &&
        std::none_of(complaints.begin(), complaints.end(), [rank](const Complaint& complaint) {
          return complaint.rank == static_cast<int>(rank);
        });
    if (by_itself && job.ranks[rank].worker == first.holder) return;
  }
  AvoidLink(transition, job, job.ranks[first.rank].worker, first.holder);
}

void ExcludeAccused(Transition& transition, JobRecord& job,
                    const std::map<int, std::set<int>>& complainers) {
  std::optional<int> accused;
  for (const auto& [peer, ranks] : complainers) {
    const RankState& rank = job.ranks[peer];
    if (!IsAlive(transition.state(), rank.worker, rank.incarnation)) continue;
    if (!accused || ranks.size() >= complainers.at(*accused).size()) accused = peer;
  }
  if (!accused) return;
  Exclude(transition, job, job.ranks[*accused].worker,
          absl::StrCat(Counted(complainers.at(*accused).size(), "rank"), " lost the link to it"));
}

}  // namespace

void ExcludeBrokenLinks(Transition& transition, JobRecord& job) {
  const std::vector<Complaint> complaints = std::exchange(job.complaints, {});
  if (IsExplained(job, complaints)) return;
  if (!job.suspicion) return AvoidFirstLink(transition, job, complaints);
  const std::set<int> let_down = LetDownByHolders(complaints);
  for (const Complaint& complaint : complaints) {
    if (complaint.holder == WorkerId() || !let_down.contains(complaint.rank)) continue;
    AvoidLink(transition, job, job.ranks[complaint.rank].worker, complaint.holder);
  }
  std::map<int, std::set<int>> complainers;
  for (const Complaint& complaint : complaints) {
    // Its peers had to end with it.
    if (complaint.peer < 0 || let_down.contains(complaint.peer)) continue;
    complainers[complaint.peer].insert(complaint.rank);
  }
  ExcludeAccused(transition, job, complainers);
}

}  // namespace sherd
