#include "plan/peer_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sherd {
namespace {

v1::Assignment Naming(const PeerAddresses& addresses) {
  v1::Assignment assignment;
  std::string previous;
  for (const auto& [rank, address] : addresses) {
    AppendPeer(rank, address, previous, *assignment.mutable_peers());
    previous = address;
  }
  return assignment;
}

TEST(PeerAddresses, ReadBackAsTheyWere) {
  const PeerAddresses addresses = {{0, "tcp:10.0.0.1:4000"},      {3, "tcp:10.0.0.1:4000"},
                                   {4, "tcp:10.0.0.12:4000"},     {7, "unix-abstract:\xC3\xA4"},
                                   {9, "unix-abstract:\xC3\xB6"}, {12, "t"}};
  v1::Assignment assignment = Naming(addresses);
  EXPECT_EQ(assignment.peers(1).address(), "");
  EXPECT_EQ(assignment.peers(2).address(), "2:4000");
  v1::Assignment sent;
  ASSERT_TRUE(sent.ParseFromString(assignment.SerializeAsString()));
  const auto read = ReadPeers(sent.peers());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, addresses);
}

TEST(PeerAddresses, AreRefusedUnlessEachFollowsFromTheOneBefore) {
  const auto error = [](const auto& change) {
    v1::Assignment assignment = Naming({{1, "tcp:a:1"}, {2, "tcp:a:2"}});
    change(assignment);
    return ReadPeers(assignment.peers()).status().ToString();
  };
  using testing::HasSubstr;
  EXPECT_EQ(error([](v1::Assignment&) {}), "OK");
  EXPECT_THAT(error([](v1::Assignment& a) { a.mutable_peers(0)->set_shared_bytes(1); }),
              HasSubstr("peer 1 is out of order"));
  EXPECT_THAT(error([](v1::Assignment& a) { a.mutable_peers(1)->set_shared_bytes(8); }),
              HasSubstr("peer 2"));
  EXPECT_THAT(error([](v1::Assignment& a) { a.mutable_peers(1)->set_shared_bytes(-1); }),
              HasSubstr("peer 2"));
  EXPECT_THAT(error([](v1::Assignment& a) { a.mutable_peers(1)->set_rank(1); }),
              HasSubstr("peer 1"));
  EXPECT_THAT(error([](v1::Assignment& a) { a.mutable_peers(0)->set_rank(-1); }),
              HasSubstr("peer -1"));
  EXPECT_THAT(error([](v1::Assignment& a) { a.mutable_peers(0)->set_address(""); }),
              HasSubstr("0 bytes"));
  EXPECT_THAT(
      error([](v1::Assignment& a) { a.mutable_peers(1)->set_address(std::string(300, 'x')); }),
      HasSubstr("306 bytes"));
}

}  // namespace
}  // namespace sherd
