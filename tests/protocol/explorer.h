#pragma once

#include <xxhash.h>

#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace sherd::protocol {

// What can happen next in a state, in an order that depends on the state alone. States are plain
// bytes without padding that differs between equals.
template <typename State>
class Moves {
 public:
  explicit Moves(bool with_texts) : with_texts_(with_texts) {}

  // `fault`: the environment's doing, which nobody may wait for.
  void Add(const State& next, bool fault, absl::FunctionRef<std::string()> text) {
    moves_.push_back({next, fault, with_texts_ ? text() : std::string()});
  }
  void Clear() { moves_.clear(); }

  struct Move {
    State next;
    bool fault;
    std::string text;
  };
  std::vector<Move>& all() { return moves_; }

 private:
  const bool with_texts_;
  std::vector<Move> moves_;
};

struct Findings {
  int64_t states = 0;
  int64_t moves = 0;
  // "" when all is well, else what is wrong and, a line each, the shortest way there.
  std::string violation;
  std::string trace;
};

// Visits every state that can be reached, nearest first, and stops at the first wrong one. Without
// one, looks for states from which no end can be reached unless a fault helps. A model has:
//   State Initial() const;
//   void Next(const State&, Moves<State>&) const;
//   std::string Violation(const State&) const;  // "" if none
//   bool Ended(const State&) const;             // nothing more has to happen
//   std::string Show(const State&) const;       // for the end of a trace
// States are told apart by 128 bits of hash.
template <typename Model, typename State>
class Explorer {
  static_assert(std::is_trivially_copyable_v<State>);

 public:
  explicit Explorer(const Model& model) : model_(model) {}

  Findings Run() {
    Visit(model_.Initial(), kNone, 0);
    Moves<State> moves(/*with_texts=*/false);
    for (uint32_t index = 0; !frontier_.empty(); ++index) {
      const State state = frontier_.front();
      frontier_.pop_front();
      first_edge_.push_back(edges_.size());
      ended_.push_back(model_.Ended(state));
      const std::string violation = model_.Violation(state);
      if (!violation.empty()) return Found(violation, index);
      if (ended_.back()) continue;
      moves.Clear();
      model_.Next(state, moves);
      findings_.moves += static_cast<int64_t>(moves.all().size());
      for (size_t i = 0; i < moves.all().size(); ++i) {
        const auto& move = moves.all()[i];
        const uint32_t next = Visit(move.next, index, static_cast<uint16_t>(i));
        if (!move.fault) edges_.push_back(next);
      }
    }
    first_edge_.push_back(edges_.size());
    const uint32_t stuck = FirstWithoutEnd();
    if (stuck != kNone) return Found("from here on nothing leads to an end", stuck);
    findings_.states = static_cast<int64_t>(origins_.size());
    return findings_;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  using Key = std::pair<uint64_t, uint64_t>;
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.first; }
  };
  struct Origin {
    uint32_t from;
    uint16_t move;
  };

  static Key KeyOf(const State& state) {
    const XXH128_hash_t hash = XXH3_128bits(&state, sizeof(State));
    return {hash.low64, hash.high64};
  }

  uint32_t Visit(const State& state, uint32_t from, uint16_t move) {
    const auto [entry, added] =
        indices_.try_emplace(KeyOf(state), static_cast<uint32_t>(origins_.size()));
    if (added) {
      origins_.push_back({from, move});
      frontier_.push_back(state);
    }
    return entry->second;
  }

  // Of all states from which no end is reached without a fault, the nearest; kNone if there is
  // none.
  uint32_t FirstWithoutEnd() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t state = ended_.size(); state-- > 0;) {
        for (size_t i = first_edge_[state]; i < first_edge_[state + 1] && !ended_[state]; ++i) {
          if (!ended_[edges_[i]]) continue;
          ended_[state] = 1;
          changed = true;
        }
      }
    }
    for (size_t state = 0; state < ended_.size(); ++state) {
      if (!ended_[state]) return static_cast<uint32_t>(state);
    }
    return kNone;
  }

  Findings Found(const std::string& violation, uint32_t index) {
    std::vector<uint16_t> way;
    for (uint32_t at = index; origins_[at].from != kNone; at = origins_[at].from) {
      way.push_back(origins_[at].move);
    }
    Moves<State> moves(/*with_texts=*/true);
    State state = model_.Initial();
    int number = 0;
    for (auto move = way.rbegin(); move != way.rend(); ++move) {
      moves.Clear();
      model_.Next(state, moves);
      absl::StrAppend(&findings_.trace, ++number, ". ", moves.all()[*move].text, "\n");
      state = moves.all()[*move].next;
    }
    absl::StrAppend(&findings_.trace, model_.Show(state));
    findings_.violation = violation;
    findings_.states = static_cast<int64_t>(origins_.size());
    return findings_;
  }

  const Model& model_;
  std::deque<State> frontier_;
  absl::flat_hash_map<Key, uint32_t, KeyHash> indices_;
  std::vector<Origin> origins_;
  // The targets of all moves that are no faults, and where those of each state begin.
  std::vector<uint32_t> edges_;
  std::vector<size_t> first_edge_;
  std::vector<char> ended_;
  Findings findings_;
};

}  // namespace sherd::protocol
