#include "coordinator/core/leases.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kStart = absl::UnixEpoch();
const WorkerId kA("a");
const WorkerId kB("b");

TEST(Leases, ExpireAfterTheirTimeAndOnce) {
  Leases leases;
  leases.Renew(kB, kStart, absl::Seconds(3));
  leases.Renew(kA, kStart, absl::Seconds(3));
  EXPECT_THAT(leases.Expire(kStart + absl::Seconds(3)), IsEmpty());
  EXPECT_THAT(leases.Expire(kStart + absl::Seconds(3.001)), ElementsAre(kA, kB));
  EXPECT_THAT(leases.Expire(kStart + absl::Seconds(9)), IsEmpty());
}

TEST(Leases, RenewalMovesTheEnd) {
  Leases leases;
  leases.Renew(kA, kStart, absl::Seconds(3));
  leases.Renew(kA, kStart + absl::Seconds(2), absl::Seconds(3));
  EXPECT_THAT(leases.Expire(kStart + absl::Seconds(4)), IsEmpty());
  leases.Remove(kA);
  EXPECT_THAT(leases.Expire(kStart + absl::Seconds(10)), IsEmpty());
}

TEST(Leases, APauseMovesEveryEnd) {
  Leases leases;
  leases.Renew(kA, kStart, absl::Seconds(3));
  leases.Postpone(absl::Seconds(10));
  EXPECT_THAT(leases.Expire(kStart + absl::Seconds(12)), IsEmpty());
  EXPECT_THAT(leases.Expire(kStart + absl::Seconds(14)), ElementsAre(kA));
}

}  // namespace
}  // namespace sherd
