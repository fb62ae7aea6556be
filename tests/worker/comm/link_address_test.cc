#include "worker/comm/link_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sherd {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(LinkAddress, ReadsBackWhatItWrites) {
  for (const char* text : {"tcp:10.0.0.1:4711", "tcp:[fd00::1]:65535", "tcp:127.0.0.1:1"}) {
    const auto parsed = ParseLinkAddress(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(FormatTcpAddress(*parsed), text);
  }
  EXPECT_EQ(ParseLinkAddress("unix-abstract:sherd-1")->family(), AF_UNIX);
}

TEST(LinkAddress, RefusesEveryOtherForm) {
  for (const char* text :
       {"", "tcp:", "tcp:10.0.0.1", "tcp:10.0.0.1:", "tcp:10.0.0.1:0", "tcp:10.0.0.1:65536",
        "tcp:10.0.0.1:-1", "tcp::4711", "tcp:[fd00::1:4711", "tcp:[]:4711", "tcp:host:4711",
        "udp:10.0.0.1:4711", "unix-abstract:", "10.0.0.1:4711"}) {
    const absl::Status status = ParseLinkAddress(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  EXPECT_FALSE(ParseLinkAddress("unix-abstract:" + std::string(108, 'x')).ok());
}

TEST(LinkAddress, TheHostThatFacesALoopbackAddressIsThatAddress) {
  EXPECT_EQ(*HostTowards("127.0.0.1:7700"), "127.0.0.1");
  EXPECT_THAT(*HostTowards("localhost:7700"), AnyOf("127.0.0.1", "::1"));
  for (const char* text : {"", "127.0.0.1", "no host:7700"}) {
    EXPECT_EQ(HostTowards(text).status().code(), absl::StatusCode::kUnavailable) << text;
  }
}

}  // namespace
}  // namespace sherd
