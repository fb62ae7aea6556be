#include "nccl_kinds.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "nccl_ranks.h"

namespace sherd {
namespace {

// Ends what the last group left before the program ends.
class EndOfRanks : public testing::Environment {
 public:
  explicit EndOfRanks(std::shared_ptr<std::unique_ptr<NcclRanks>> ranks)
      : ranks_(std::move(ranks)) {}
  void TearDown() override { ranks_->reset(); }

 private:
  std::shared_ptr<std::unique_ptr<NcclRanks>> ranks_;
};

CommunicatorKind KindOf(const std::string& name, bool reproducible) {
  // What communicators need for as long as they live. The suite has one group at a time.
  auto ranks = std::make_shared<std::unique_ptr<NcclRanks>>();
  testing::AddGlobalTestEnvironment(new EndOfRanks(ranks));
  const auto form = [ranks, reproducible](int size, const GroupOptions& options) {
    ranks->reset();
    *ranks = std::make_unique<NcclRanks>(size);
    (*ranks)->form().arena_bytes = options.arena_bytes;
    (*ranks)->form().operation_timeout = options.operation_timeout;
    (*ranks)->options().reproducible = reproducible;
    for (const int skip : {0, 3, 10}) {
      (*ranks)->nccl().Inject({.call = NcclCall::kGroupEnd,
                               .what = NcclFault::kDelay,
                               .polls = 3,
                               .skip = skip,
                               .times = 2});
    }
    return (*ranks)->MustForm();
  };
  return {.name = name, .transport = Transport::kTcp, .form = form, .tree_bits = reproducible};
}

}  // namespace

std::vector<CommunicatorKind> NcclCommunicatorKinds() {
  return {KindOf("nccl_tree", true), KindOf("nccl", false)};
}

}  // namespace sherd
