#include "worker/train/hand_over_shard.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/few_descriptors.h"
#include "worker/holdings/lost_holder.h"

namespace sherd::testing {
namespace {

class HandOverShardTest : public ::testing::Test {
 protected:
  absl::Status HandOverTo(const std::string& holder) {
    v1::Assignment assignment;
    assignment.set_secret("secret");
    assignment.add_holders(holder);
    return HandOverShard(assignment, *segment_, abort_, nullptr).status();
  }

  const std::shared_ptr<HoldingSegment> segment_ = *HoldingSegment::Create({"j-1", 1, 2, 0}, 4096);
  FormationAbort abort_;
};

TEST_F(HandOverShardTest, NamesAHolderThatIsGone) {
  const std::string holder = (*DataListener::Bind())->address();
  const absl::Status gone = HandOverTo(holder);
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
  EXPECT_EQ(LostHolderOf(gone), holder);
}

using FewDescriptorsHandOver = HandOverShardTest;
TEST_F(FewDescriptorsHandOver, BlamesNoHolder) {
  const std::unique_ptr<DataListener> listener = *DataListener::Bind();
  for (const std::string& holder : {listener->address(), listener->network_address()}) {
    const FewDescriptors none(0);
    const absl::Status held = HandOverTo(holder);
    EXPECT_EQ(held.code(), absl::StatusCode::kResourceExhausted) << held;
    EXPECT_EQ(LostHolderOf(held), "");
  }
}

}  // namespace
}  // namespace sherd::testing
