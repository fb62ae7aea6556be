#include "tests/worker/model/tensor_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "tests/worker/comm/communicator_kinds.h"

namespace sherd {
namespace {

// Calls visit(index in the member's part, index in the whole tensor) for all but padding.
void ForEachElement(const Parameter& parameter,
                    const std::function<void(int64_t own, int64_t whole)>& visit) {
  for (const SliceRun& run : RunsOf(parameter, 0, parameter.elements)) {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t row = (run.at + i) / run.columns.size();
      const int64_t column = run.columns.begin + (run.at + i) % run.columns.size();
      visit(run.begin + i, row * parameter.slice.tensor_columns() + column);
    }
  }
}

}  // namespace

TensorWorld::TensorWorld(const ModelShape& shape, int degree, bool sequence, int64_t batch,
                         int64_t tokens, KeptActivations kept, const CommunicatorWrapper& wrap) {
  const TensorPlace first{.degree = degree, .index = 0, .sequence = sequence};
  GroupOptions options;
  options.arena_bytes =
      TensorArenaActivationBytes(shape, PartOf(shape, first), batch, tokens, kept);
  communicators_ = AllCommunicatorKinds().front().form(degree, options);
  for (int index = 0; index < degree; ++index) {
    std::unique_ptr<Communicator>& own = communicators_[static_cast<size_t>(index)];
    if (wrap != nullptr) own = wrap(std::move(own), index);
    TensorPlace place = first;
    place.index = index;
    groups_.push_back(
        std::make_unique<TensorGroup>(communicator(index), communicator(index).arena()));
    members_.push_back(std::make_unique<ModelHarness>(shape, batch, tokens, kept, /*threads=*/1,
                                                      place, groups_.back().get()));
  }
}

void TensorWorld::CopyParameters(ModelHarness& whole) {
  for (const std::unique_ptr<ModelHarness>& member : members_) {
    for (const Unit& unit : member->inventory().units) {
      for (const Parameter& parameter : unit.parameters) {
        float* own = member->param(parameter.name);
        const float* all = whole.param(parameter.name);
        std::fill_n(own, parameter.elements, 0.0f);
        ForEachElement(parameter, [&](int64_t to, int64_t from) { own[to] = all[from]; });
      }
    }
  }
}

void TensorWorld::Run(const std::function<void(int index)>& member_main) {
  RunRanks(degree(), member_main);
}

std::vector<double> TensorWorld::Step(const MicroBatch& micro_batch, float scale) {
  std::vector<double> losses(members_.size());
  Run([&](int index) {
    losses[static_cast<size_t>(index)] = member(index).Step(micro_batch, scale);
  });
  return losses;
}

std::vector<double> TensorWorld::Loss(const MicroBatch& micro_batch) {
  std::vector<double> losses(members_.size());
  Run([&](int index) { losses[static_cast<size_t>(index)] = member(index).Loss(micro_batch); });
  return losses;
}

std::vector<float> TensorWorld::Gradient(const Parameter& whole) {
  std::vector<float> gradient(static_cast<size_t>(whole.elements));
  for (int index = 0; index < degree(); ++index) {
    const Parameter& parameter = member(index).parameter(whole.name);
    const float* own = member(index).grad(whole.name);
    std::vector<bool> padding(static_cast<size_t>(parameter.elements), true);
    const bool again = index % parameter.copies != 0;
    ForEachElement(parameter, [&](int64_t from, int64_t to) {
      padding[static_cast<size_t>(from)] = false;
      if (!again || parameter.partial_gradient) gradient[static_cast<size_t>(to)] += own[from];
    });
    for (size_t i = 0; i < padding.size(); ++i) {
      if (!padding[i]) continue;
      EXPECT_EQ(own[i], 0) << whole.name << " of member " << index;
    }
    if (!again || parameter.partial_gradient) continue;
    EXPECT_EQ(0, std::memcmp(own, member(index - 1).grad(whole.name),
                             static_cast<size_t>(parameter.elements) * sizeof(float)))
        << whole.name << " of member " << index;
  }
  return gradient;
}

}  // namespace sherd
