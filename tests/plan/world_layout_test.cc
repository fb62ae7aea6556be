#include "plan/world_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif

// What a member of a tensor-parallel group has of a tensor, in this test's own words: one rectangle
// of it, and which of the equal copies that members hold this one is.
struct Slice {
  std::string tensor;
  int64_t columns = 1;  // of the tensor
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t width = 1;
  int copy = 0;
  // Rows that the tensor really has of these.
  int64_t present = 0;
};

struct Sizes {
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, context;
  bool llama, tied;
};

Sizes SizesOf(const v1::ModelSpec& model) {
  return {model.layers(),        model.hidden(),
          model.heads(),         model.kv_heads(),
          model.ffn(),           model.vocab(),
          model.context(),       model.arch() == v1::ARCHITECTURE_LLAMA,
          model.tie_embeddings()};
}

// The units of member `index` of `degree` as lists of rectangles in the order in which they lie in
// the unit's buffer. Written out from section 5 of the design, not from plan/parameters.cc.
class Member {
 public:
  Member(const Sizes& sizes, int degree, int index) : s_(sizes), t_(degree), i_(index) {}

  std::vector<std::vector<Slice>> Units() const {
    std::vector<std::vector<Slice>> units = {{Vocabulary("embed")}};
    if (!s_.llama) units.front().push_back(Whole("positions", s_.context, s_.hidden));
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      units.push_back(s_.llama ? Llama(absl::StrCat(layer)) : Gpt2(absl::StrCat(layer)));
    }
    units.push_back({Whole("last norm", s_.hidden, 1)});
    if (!s_.llama) units.back().push_back(Whole("last norm bias", s_.hidden, 1));
    if (!s_.tied) units.back().push_back(Vocabulary("head"));
    return units;
  }

 private:
  Slice Whole(const std::string& name, int64_t rows, int64_t columns) const {
    return {name, columns, 0, rows, 0, columns, static_cast<int>(i_), rows};
  }
  Slice Rows(const std::string& name, int64_t from, int64_t rows, int64_t columns,
             int copy = 0) const {
    return {name, columns, from, rows, 0, columns, copy, rows};
  }
  Slice Columns(const std::string& name, int64_t rows, int64_t columns) const {
    const int64_t width = columns / t_;
    return {name, columns, 0, rows, i_ * width, width, 0, rows};
  }
  Slice Vocabulary(const std::string& name) const {
    const int64_t rows = (s_.vocab + t_ - 1) / t_;
    Slice slice = Rows(name, i_ * rows, rows, s_.hidden);
    slice.present = std::clamp<int64_t>(s_.vocab - i_ * rows, 0, rows);
    return slice;
  }
  // Keys or values: a part of the heads, or one head that `copies` neighbours have as well.
  Slice Kv(const std::string& name) const {
    const int64_t head = s_.hidden / s_.heads;
    const int64_t copies = std::max<int64_t>(1, t_ / s_.kv_heads);
    const int64_t heads = std::max<int64_t>(1, s_.kv_heads / t_);
    return Rows(name, i_ / copies * heads * head, heads * head, s_.hidden,
                static_cast<int>(i_ % copies));
  }
  std::vector<Slice> Llama(const std::string& layer) const {
    const int64_t h = s_.hidden, f = s_.ffn;
    return {Whole(layer + " norm", h, 1),
            Rows(layer + " q", i_ * (h / t_), h / t_, h),
            Kv(layer + " k"),
            Kv(layer + " v"),
            Columns(layer + " o", h, h),
            Whole(layer + " norm 2", h, 1),
            Rows(layer + " gate", i_ * (f / t_), f / t_, h),
            Rows(layer + " up", i_ * (f / t_), f / t_, h),
            Columns(layer + " down", h, f)};
  }
  std::vector<Slice> Gpt2(const std::string& layer) const {
    const int64_t h = s_.hidden, f = s_.ffn, part = h / t_;
    std::vector<Slice> unit = {Whole(layer + " ln", h, 1), Whole(layer + " ln bias", h, 1)};
    for (const int64_t third : {0, 1, 2}) {
      unit.push_back(Rows(layer + " qkv", third * h + i_ * part, part, h));
    }
    for (const int64_t third : {0, 1, 2}) {
      unit.push_back(Rows(layer + " qkv bias", third * h + i_ * part, part, 1));
    }
    unit.push_back(Columns(layer + " proj", h, h));
    unit.push_back(Whole(layer + " proj bias", h, 1));
    unit.push_back(Whole(layer + " ln 2", h, 1));
    unit.push_back(Whole(layer + " ln 2 bias", h, 1));
    unit.push_back(Rows(layer + " fc", i_ * (f / t_), f / t_, h));
    unit.push_back(Rows(layer + " fc bias", i_ * (f / t_), f / t_, 1));
    unit.push_back(Columns(layer + " down", h, f));
    unit.push_back(Whole(layer + " down bias", h, 1));
    return unit;
  }

  const Sizes s_;
  const int64_t t_;
  const int64_t i_;
};

// Of one copy of a tensor and one block of its columns: runs of elements, in the block's row-major
// order, that some rank owns.
struct Place {
  std::string tensor;
  int copy;
  int64_t column;
  int64_t width;
  bool operator<(const Place& other) const {
    return std::tie(tensor, copy, column, width) <
           std::tie(other.tensor, other.copy, other.column, other.width);
  }
};
using Runs = std::map<Place, std::vector<std::pair<int64_t, int64_t>>>;

// The elements of [begin, end) of a unit's buffer, tensor by tensor.
void AddOwned(const std::vector<Slice>& unit, int64_t begin, int64_t end, Runs& runs) {
  int64_t at = 0;
  for (const Slice& slice : unit) {
    const int64_t from = std::max(begin, at);
    const int64_t to = std::min(end, at + slice.present * slice.width);
    if (from < to) {
      const int64_t first = slice.row * slice.width - at;
      runs[{slice.tensor, slice.copy, slice.column, slice.width}].emplace_back(first + from,
                                                                               first + to);
    }
    at += slice.rows * slice.width;
  }
}

// Elements of every copy of every tensor that ranks [first, last) of each tensor position's
// data-parallel group own together.
Runs WalkOwned(const WorldLayout& layout, const v1::JobSpec& spec, int first, int last) {
  const int tensor = TensorDegreeOf(spec.parallel());
  Runs runs;
  for (int index = 0; index < tensor; ++index) {
    const std::vector<std::vector<Slice>> units =
        Member(SizesOf(spec.model()), tensor, index).Units();
    for (int member = first; member < last; ++member) {
      const std::vector<v1::UnitShard> shards = layout.ShardsOf(member * tensor + index);
      EXPECT_EQ(shards.size(), units.size());
      for (size_t unit = 0; unit < units.size(); ++unit) {
        int64_t elements = 0;
        for (const Slice& slice : units[unit]) elements += slice.rows * slice.width;
        EXPECT_EQ(shards[unit].unit_elements(), elements);
        AddOwned(units[unit], shards[unit].begin(), shards[unit].end(), runs);
      }
    }
  }
  return runs;
}

// Every element of every copy once, and no other. The elements that are owned.
int64_t CheckOwnedOnce(const v1::JobSpec& spec, Runs runs) {
  const Sizes sizes = SizesOf(spec.model());
  const int tensor = TensorDegreeOf(spec.parallel());
  std::map<std::string, std::pair<int64_t, int64_t>> shapes;  // rows, columns
  std::map<std::string, int> copies;
  for (int index = 0; index < tensor; ++index) {
    for (const std::vector<Slice>& unit : Member(sizes, tensor, index).Units()) {
      for (const Slice& slice : unit) {
        auto& [rows, columns] = shapes[slice.tensor];
        rows = std::max(rows, slice.present == 0 ? 0 : slice.row + slice.present);
        columns = slice.columns;
        copies[slice.tensor] = std::max(copies[slice.tensor], slice.copy + 1);
      }
    }
  }
  std::map<std::pair<std::string, int>, int64_t> next_column;
  int64_t owned = 0;
  for (auto& [place, ranges] : runs) {
    std::sort(ranges.begin(), ranges.end());
    const auto& [rows, columns] = shapes.at(place.tensor);
    int64_t& column = next_column[{place.tensor, place.copy}];
    EXPECT_EQ(place.column, column) << place.tensor;
    column += place.width;
    int64_t end = 0;
    for (const auto& [from, to] : ranges) {
      EXPECT_EQ(from, end) << place.tensor;
      end = to;
    }
    EXPECT_EQ(end, rows * place.width) << place.tensor;
    owned += end;
  }
  size_t expected = 0;
  for (const auto& [name, count] : copies) expected += static_cast<size_t>(count);
  EXPECT_EQ(next_column.size(), expected);
  for (const auto& [key, column] : next_column) {
    EXPECT_EQ(column, shapes.at(key.first).second) << key.first;
  }
  return owned;
}

v1::JobSpec SmallJob(bool llama, int64_t kv_heads, int64_t vocab, int64_t tensor,
                     int64_t shard_group) {
  v1::JobSpec spec = testing::MakeJob("zero3", v1::DATA_TYPE_BF16, 4,
                                      {.layers = 2, .hidden = 24, .heads = 4, .ffn = 20});
  if (llama) testing::MakeLlama(spec);
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_vocab(vocab);
  model.set_kv_heads(kv_heads);
  model.set_tie_embeddings(vocab % 2 == 0);
  spec.mutable_parallel()->set_tensor(tensor);
  spec.mutable_parallel()->set_shard_group(shard_group);
  if (shard_group > 0) spec.mutable_parallel()->set_strategy(v1::STRATEGY_HYBRID);
  return spec;
}

// F4, F10, F11, F14: whatever the degrees, each replica owns every element of every copy once.
TEST(WorldLayout, OwnsEveryElementOncePerReplicaOnEveryGrid) {
  for (const bool llama : {false, true}) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      if (!llama && kv_heads != 4) continue;
      for (const int64_t vocab : {5, 64, 257}) {
        for (const int tensor : {1, 2, 4}) {
          for (const auto& [data, shard_group] : {std::pair{1, 0}, {2, 0}, {3, 0}, {6, 3}}) {
            const v1::JobSpec spec = SmallJob(llama, kv_heads, vocab, tensor, shard_group);
            const WorldLayout layout(spec, tensor * data);
            const int replica = shard_group > 0 ? shard_group : data;
            for (int first = 0; first < data; first += replica) {
              CheckOwnedOnce(spec, WalkOwned(layout, spec, first, first + replica));
            }
          }
        }
      }
    }
  }
}

TEST(WorldLayout, NamesTheGroupsOfCopies) {
  const WorldLayout layout(SmallJob(/*llama=*/true, 2, 64, 4, 0), 8);
  const std::vector<v1::ProcessGroup> groups = layout.GroupsOf(6);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(groups[0].ranks(), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(groups[1].ranks(), ElementsAre(2, 6));
  EXPECT_EQ(groups[2].kind(), v1::GROUP_KIND_KV_COPY);
  EXPECT_THAT(groups[2].ranks(), ElementsAre(6, 7));
}

v1::JobSpec SeventyBillion(int64_t tensor) {
  v1::JobSpec spec;
  spec.set_name("large");
  spec.mutable_model()->set_preset("llama3-70b");
  spec.mutable_parallel()->set_tensor(tensor);
  return NormalizeJobSpec(spec);
}

double ThreadCpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// 16,384 ranks: every byte of 70,553,706,496 parameters has one owner, and norms one a member.
TEST(WorldLayout, OwnsEveryElementOnceOnSixteenThousandRanks) {
  constexpr int kTensor = 8;
  const int data = kInstrumented ? 32 : 2048;
  const v1::JobSpec spec = SeventyBillion(kTensor);
  const WorldLayout layout(spec, kTensor * data);
  const int64_t norms = 161 * 8192;
  EXPECT_EQ(CheckOwnedOnce(spec, WalkOwned(layout, spec, 0, data)),
            70'553'706'496 + (kTensor - 1) * norms);
}

TEST(WorldLayout, OfSixteenThousandRanksIsComputedInTwoSeconds) {
  if (kInstrumented) GTEST_SKIP() << "instrumented code is slower";
  const v1::JobSpec spec = SeventyBillion(8);
  const double start = ThreadCpuSeconds();
  const WorldLayout layout(spec, 16384);
  int64_t entries = 0;
  for (int rank = 0; rank < layout.world(); ++rank) {
    for (const v1::ProcessGroup& group : layout.GroupsOf(rank)) entries += group.ranks_size();
    entries += static_cast<int64_t>(layout.ShardsOf(rank).size());
  }
  const double seconds = ThreadCpuSeconds() - start;
  EXPECT_EQ(entries, 16384 * (8 + 2048 + 82));
  EXPECT_LT(seconds, 2.0);
  RecordProperty("cpu_seconds", absl::StrCat(seconds));
}

}  // namespace
}  // namespace sherd
