#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/model/model_harness.h"
#include "worker/comm/communicator.h"
#include "worker/model/tensor_group.h"

namespace sherd {

// Stands between a member and its communicator.
using CommunicatorWrapper =
    std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>, int index)>;

// The members of a tensor-parallel group as threads of this process, over shared memory. Arenas are
// exactly as large as predicted.
class TensorWorld {
 public:
  TensorWorld(const ModelShape& shape, int degree, bool sequence, int64_t batch, int64_t tokens,
              KeptActivations kept = KeptActivations::kEverything,
              const CommunicatorWrapper& wrap = nullptr);

  // Gives every member its part of the whole model's parameters; padding becomes zero.
  void CopyParameters(ModelHarness& whole);
  // Calls `member_main(index)` for each member on a thread of its own and waits for all.
  void Run(const std::function<void(int index)>& member_main);
  // What each member returns.
  std::vector<double> Step(const MicroBatch& micro_batch, float scale);
  std::vector<double> Loss(const MicroBatch& micro_batch);

  // The gradient of a whole tensor from all members' parts: shares are added up in member order.
  // Expects that members which compute all of a gradient have the same bits, and that padding has
  // none.
  std::vector<float> Gradient(const Parameter& whole);

  int degree() const { return static_cast<int>(members_.size()); }
  ModelHarness& member(int index) { return *members_[static_cast<size_t>(index)]; }
  Communicator& communicator(int index) { return *communicators_[static_cast<size_t>(index)]; }
  TensorGroup& group(int index) { return *groups_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<TensorGroup>> groups_;
  std::vector<std::unique_ptr<ModelHarness>> members_;
};

}  // namespace sherd
