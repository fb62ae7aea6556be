#include "nccl_kinds.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "nccl_ranks.h"

namespace sherd {
namespace {

// What the communicators of a group need for as long as they live. The suite has one group at a
// time, and asks for the kinds anew for each of its tests.
class LastRanks : public testing::Environment {
 public:
  NcclRanks& Renew(int size) {
    ranks_.reset();
    ranks_ = std::make_unique<NcclRanks>(size);
    return *ranks_;
  }
  void TearDown() override { ranks_.reset(); }

 private:
  std::unique_ptr<NcclRanks> ranks_;
};

LastRanks& TheLastRanks() {
  // The test program owns it.
  static auto* const last =
      static_cast<LastRanks*>(testing::AddGlobalTestEnvironment(new LastRanks()));
  return *last;
}

CommunicatorKind KindOf(const std::string& name, bool reproducible) {
  LastRanks& last = TheLastRanks();
  const auto form = [&last, reproducible](int size, const GroupOptions& options) {
    NcclRanks& ranks = last.Renew(size);
    ranks.form().arena_bytes = options.arena_bytes;
    ranks.form().operation_timeout = options.operation_timeout;
    ranks.options().reproducible = reproducible;
    for (const int skip : {0, 3, 10}) {
      ranks.nccl().Inject({.call = NcclCall::kGroupEnd,
                           .what = NcclFault::kDelay,
                           .polls = 3,
                           .skip = skip,
                           .times = 2});
    }
    return ranks.MustForm();
  };
  return {.name = name, .transport = Transport::kTcp, .form = form, .tree_bits = reproducible};
}

}  // namespace

std::vector<CommunicatorKind> NcclCommunicatorKinds() {
  return {KindOf("nccl_tree", true), KindOf("nccl", false)};
}

}  // namespace sherd
