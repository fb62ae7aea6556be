#include "coordinator/core/seating.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "common/check.h"
#include "coordinator/core/worker_order.h"

namespace sherd {
namespace {

// Adjacent ranks in one domain.
struct Group {
  // Index among the domains; -1: none yet.
  int domain = -1;
  // By place; null where nobody sits.
  std::vector<const WorkerState*> seats;

  int64_t Members() const {
    return std::count_if(seats.begin(), seats.end(), [](const auto* seat) { return seat; });
  }
};

bool IsSameProcess(const RankState& rank, const WorkerState& worker) {
  return rank.worker == worker.id && rank.incarnation == worker.incarnation;
}

class Seating {
 public:
  Seating(const std::vector<RankState>& before, const std::vector<const IdleDomain*>& domains,
          int64_t unit)
      : unit_(unit), last_world_(static_cast<int64_t>(before.size())), domains_(domains) {
    for (const IdleDomain* domain : domains) {
      room_.push_back(static_cast<int64_t>(domain->size()) / unit);
    }
    FindSurvivors(before);
  }

  std::vector<WorkerId> Seat(int64_t world) {
    std::vector<Group> groups = KeepGroups(world);
    for (Group& group : groups) {
      if (group.domain >= 0) continue;
      const auto free = std::find_if(room_.begin(), room_.end(), [](int64_t n) { return n > 0; });
      SHERD_CHECK(free != room_.end());
      --*free;
      group.domain = static_cast<int>(free - room_.begin());
    }
    return Fill(groups);
  }

 private:
  void FindSurvivors(const std::vector<RankState>& before) {
    std::map<WorkerId, std::pair<int, const WorkerState*>> idle;
    for (size_t domain = 0; domain < domains_.size(); ++domain) {
      for (const WorkerState* worker : *domains_[domain]) {
        idle[worker->id] = {static_cast<int>(domain), worker};
      }
    }
    for (int64_t first = 0; first < last_world_; first += unit_) {
      std::map<int, Group> by_domain;
      for (int64_t rank = first; rank < std::min(first + unit_, last_world_); ++rank) {
        const auto found = idle.find(before[rank].worker);
        if (found == idle.end() || !IsSameProcess(before[rank], *found->second.second)) continue;
        Group& group = by_domain[found->second.first];
        group.domain = found->second.first;
        group.seats.resize(unit_);
        group.seats[rank - first] = found->second.second;
        survivors_[found->second.second] = rank;
      }
      // It is where most of it are.
      const auto most = std::max_element(
          by_domain.begin(), by_domain.end(),
          [](const auto& a, const auto& b) { return a.second.Members() < b.second.Members(); });
      old_groups_.push_back(most == by_domain.end() ? Group{} : most->second);
    }
  }

  // The groups of the new world, those that stay with their domain and members.
  std::vector<Group> KeepGroups(int64_t world) {
    std::vector<size_t> order;
    for (size_t i = 0; i < old_groups_.size(); ++i) {
      if (old_groups_[i].domain >= 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return old_groups_[a].Members() > old_groups_[b].Members();
    });
    std::set<size_t> staying;
    const auto wanted = static_cast<size_t>(world / unit_);
    for (const size_t i : order) {
      int64_t& room = room_[old_groups_[i].domain];
      if (staying.size() == wanted || room == 0) continue;
      --room;
      staying.insert(i);
    }
    std::vector<Group> groups(wanted, Group{-1, std::vector<const WorkerState*>(unit_)});
    size_t next = 0;
    for (const size_t i : staying) groups[world == last_world_ ? i : next++] = old_groups_[i];
    return groups;
  }

  std::vector<WorkerId> Fill(std::vector<Group>& groups) const {
    std::set<const WorkerState*> seated;
    for (const Group& group : groups) seated.insert(group.seats.begin(), group.seats.end());
    std::map<int, std::deque<const WorkerState*>> free;
    std::vector<WorkerId> workers;
    for (Group& group : groups) {
      for (const WorkerState*& seat : group.seats) {
        if (seat == nullptr) {
          if (!free.contains(group.domain)) {
            free[group.domain] = Others(*domains_[group.domain], seated);
          }
          std::deque<const WorkerState*>& offered = free.at(group.domain);
          SHERD_CHECK(!offered.empty());
          seat = offered.front();
          offered.pop_front();
        }
        workers.push_back(seat->id);
      }
    }
    return workers;
  }

  // Those of a domain without a seat: survivors, who hold something, in the order of their ranks,
  // then the others by place.
  std::deque<const WorkerState*> Others(const IdleDomain& domain,
                                        const std::set<const WorkerState*>& seated) const {
    std::map<int64_t, const WorkerState*> survivors;
    std::vector<const WorkerState*> strangers;
    for (const WorkerState* worker : domain) {
      if (seated.contains(worker)) continue;
      const auto rank = survivors_.find(worker);
      if (rank == survivors_.end()) {
        strangers.push_back(worker);
      } else {
        survivors[rank->second] = worker;
      }
    }
    SortByPlace(strangers);
    std::deque<const WorkerState*> others;
    for (const auto& [rank, worker] : survivors) others.push_back(worker);
    others.insert(others.end(), strangers.begin(), strangers.end());
    return others;
  }

  const int64_t unit_;
  const int64_t last_world_;
  const std::vector<const IdleDomain*>& domains_;
  // By domain: so many more groups fit in.
  std::vector<int64_t> room_;
  // With the rank that each was.
  std::map<const WorkerState*, int64_t> survivors_;
  std::vector<Group> old_groups_;
};

}  // namespace

std::vector<WorkerId> SeatAgain(const std::vector<RankState>& before,
                                const std::vector<const IdleDomain*>& domains, int64_t world,
                                int64_t unit) {
  return Seating(before, domains, unit).Seat(world);
}

}  // namespace sherd
