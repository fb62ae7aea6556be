#include "worker/train/rank_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/ledger.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

// A rank's memory without the others.
struct LoneRank {
  LoneRank(const v1::JobSpec& spec, int rank, int world)
      : plan(BuildRankPlan(spec, rank, world)),
        sharers(meter, Pool::kComm, ArenaBytes(plan)),
        replicas(meter, Pool::kComm, ReplicaArenaBytes(plan)),
        tensor(meter, Pool::kComm, ShareBytes(plan, plan.part().place.degree)),
        kv_copies(meter, Pool::kComm, ShareBytes(plan, plan.part().kv_copies)),
        memory(plan,
               {.sharers = sharers.data(),
                .replicas = replicas.data(),
                .tensor = tensor.data(),
                .kv_copies = kv_copies.data()},
               VersionSlots{}, meter) {}

  MemoryMeter meter;
  const RankPlan plan;
  Buffer sharers, replicas, tensor, kv_copies;
  RankMemory memory;
};

struct World {
  v1::JobSpec spec;
  int ranks;
  std::string title;
};

// Every strategy over even and odd data-parallel groups, whose members are single ranks or
// tensor-parallel groups of two and four; a Llama's two heads of keys and values are fewer than
// four.
void ForEachWorld(const std::function<void(const World&)>& visit) {
  for (const int tensor : {1, 2, 4}) {
    for (const int data : {1, 2, 3, 4}) {
      for (const absl::string_view strategy : testing::StrategiesOf(data)) {
        for (const bool llama : {false, true}) {
          v1::JobSpec spec = testing::MakeJob(
              strategy, v1::DATA_TYPE_BF16, 2 * data,
              {.layers = 1, .hidden = 40, .heads = 4, .ffn = 28, .vocab = 257, .context = 9});
          if (llama) testing::MakeLlama(spec);
          if (llama) spec.mutable_model()->set_kv_heads(2);
          spec.mutable_model()->set_tie_embeddings(data % 2 == 1);
          spec.mutable_parallel()->set_tensor(tensor);
          visit(
              {spec, tensor * data,
               absl::StrCat(strategy, " over ", data, " × ", tensor, llama ? " of a llama" : "")});
        }
      }
    }
  }
}

// Visits what of each parameter of a unit lies in `range`.
void ForEachPart(const Unit& unit, const ElementRange& range,
                 const std::function<void(const Parameter&, ElementRange)>& visit) {
  for (const Parameter& parameter : unit.parameters) {
    const int64_t begin = std::max(parameter.offset, range.begin);
    const int64_t end = std::min(parameter.offset + parameter.elements, range.end);
    if (begin < end) visit(parameter, {begin - parameter.offset, end - parameter.offset});
  }
}

// How often the rank counts each element of each whole tensor.
void CountInto(LoneRank& rank, std::map<std::string, std::vector<int>>& counts) {
  for (size_t index = 0; index < rank.plan.inventory.units.size(); ++index) {
    const Unit& unit = rank.plan.inventory.units[index];
    for (const ElementRange& counted : rank.memory.unit(static_cast<int>(index)).counted) {
      EXPECT_LE(counted.end, unit.elements);
      ForEachPart(unit, counted, [&](const Parameter& parameter, ElementRange part) {
        const int64_t columns = parameter.slice.tensor_columns();
        std::vector<int>& seen = counts[parameter.name];
        seen.resize(static_cast<size_t>(parameter.slice.tensor_rows() * columns));
        for (const SliceRun& run : RunsOf(parameter, part.begin, part.end)) {
          for (int64_t at = run.at; at < run.at + run.count; ++at) {
            const int64_t row = at / run.columns.size();
            ASSERT_LT(row, parameter.slice.tensor_rows()) << parameter.name;
            const int64_t column = run.columns.begin + at % run.columns.size();
            ++seen[static_cast<size_t>(row * columns + column)];
          }
        }
      });
    }
  }
}

// F2, F5, F10: what enters the gradient norm and the checkpoint is every element of every tensor
// exactly once, whoever holds copies of it, and no padding of units.
TEST(RankMemory, CountsEveryElementOnceOverTheWorld) {
  ForEachWorld([](const World& world) {
    std::map<std::string, std::vector<int>> counts;
    for (int index = 0; index < world.ranks; ++index) {
      LoneRank rank(world.spec, index, world.ranks);
      CountInto(rank, counts);
    }
    for (const auto& [name, seen] : counts) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ssize(seen)) << name << world.title;
    }
  });
}

// F13: what decays is decided parameter by parameter, wherever a shard begins and ends.
TEST(RankMemory, DecaysEveryOwnedElementByTheRuleOfItsParameter) {
  ForEachWorld([](const World& world) {
    for (int index = 0; index < world.ranks; ++index) {
      LoneRank rank(world.spec, index, world.ranks);
      for (size_t unit = 0; unit < rank.plan.inventory.units.size(); ++unit) {
        const UnitMemory& memory = rank.memory.unit(static_cast<int>(unit));
        std::vector<int> decays(static_cast<size_t>(memory.owned.size()), -1);  // −1: no rule
        for (const UpdateSegment& segment : memory.segments) {
          std::fill(decays.begin() + segment.begin, decays.begin() + segment.end,
                    segment.settings.weight_decay > 0 ? 1 : 0);
        }
        ForEachPart(rank.plan.inventory.units[unit], memory.owned,
                    [&](const Parameter& parameter, ElementRange part) {
                      const auto begin =
                          decays.begin() + parameter.offset - memory.owned.begin + part.begin;
                      EXPECT_EQ(std::count(begin, begin + part.size(), parameter.decays ? 1 : 0),
                                part.size())
                          << parameter.name << world.title;
                    });
      }
    }
  });
}

// Where gradients or sums of them lie one unit behind the other, others can tell from their sizes
// what lies where (RoomIn).
TEST(RankMemory, HasGradientsOfUnitsOneBehindTheOther) {
  ForEachWorld([](const World& world) {
    for (int index = 0; index < world.ranks; ++index) {
      LoneRank rank(world.spec, index, world.ranks);
      const bool scattered = rank.plan.ScattersEachMicroBatch();
      const std::byte* next = rank.memory.gradients();
      ASSERT_NE(next, nullptr);
      for (size_t unit = 0; unit < rank.plan.layout.units.size(); ++unit) {
        const UnitLayout& layout = rank.plan.layout.units[unit];
        UnitMemory& memory = rank.memory.unit(static_cast<int>(unit));
        // An empty sum is in the first of the tree's buffers.
        EXPECT_EQ(scattered ? memory.tree->Finish() : memory.grads, next) << world.title;
        next += (scattered ? layout.shard_elements : layout.padded_elements) * rank.plan.grad_bytes;
      }
    }
  });
}

}  // namespace
}  // namespace sherd
