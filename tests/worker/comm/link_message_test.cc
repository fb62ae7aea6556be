#include "worker/comm/link_message.h"

#include <gtest/gtest.h>

#include <random>

namespace sherd {
namespace {

const LinkHello kHello = {.job_id = "job-7",
                          .epoch = 1LL << 40,
                          .group = "data:0",
                          .secret = std::string("\0s\xff", 3),
                          .size = 8,
                          .from = 5,
                          .to = 2,
                          .lane = LinkLane::kData};

TEST(LinkMessage, ReadsBackWhatWasWritten) {
  const auto hello = DecodeLinkMessage(EncodeLinkMessage(kHello));
  ASSERT_TRUE(hello.ok()) << hello.status();
  const auto& read = std::get<LinkHello>(*hello);
  EXPECT_EQ(read.job_id, kHello.job_id);
  EXPECT_EQ(read.epoch, kHello.epoch);
  EXPECT_EQ(read.group, kHello.group);
  EXPECT_EQ(read.secret, kHello.secret);
  EXPECT_EQ(read.size, 8);
  EXPECT_EQ(read.from, 5);
  EXPECT_EQ(read.to, 2);
  EXPECT_EQ(read.lane, LinkLane::kData);

  const auto segment = DecodeLinkMessage(EncodeLinkMessage(LinkSegment{"secret", -1}));
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(std::get<LinkSegment>(*segment).arena_bytes, -1);

  const auto goodbye = DecodeLinkMessage(
      EncodeLinkMessage(LinkGoodbye{absl::StatusCode::kUnavailable, 3, "rank 3 went away"}));
  ASSERT_TRUE(goodbye.ok());
  EXPECT_EQ(std::get<LinkGoodbye>(*goodbye).code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::get<LinkGoodbye>(*goodbye).lost_peer, 3);
  EXPECT_EQ(std::get<LinkGoodbye>(*goodbye).text, "rank 3 went away");

  const LinkHolding wish{.wish = LinkHolding::Wish::kGive,
                         .job_id = "job-7",
                         .epoch = 3,
                         .world = 4,
                         .owner = 2,
                         .slot_bytes = int64_t{1} << 40};
  const auto holding = DecodeLinkMessage(EncodeLinkMessage(wish));
  ASSERT_TRUE(holding.ok()) << holding.status();
  const auto& wished = std::get<LinkHolding>(*holding);
  EXPECT_EQ(wished.wish, wish.wish);
  EXPECT_EQ(wished.job_id, wish.job_id);
  EXPECT_EQ(wished.epoch, wish.epoch);
  EXPECT_EQ(wished.world, wish.world);
  EXPECT_EQ(wished.owner, wish.owner);
  EXPECT_EQ(wished.slot_bytes, wish.slot_bytes);
}

TEST(LinkMessage, RefusesALaneThatIsNone) {
  std::string whole = EncodeLinkMessage(kHello);
  whole.back() = '\x02';
  EXPECT_FALSE(DecodeLinkMessage(whole).ok());
}

TEST(LinkMessage, CutsALongGoodbye) {
  const auto goodbye = DecodeLinkMessage(
      EncodeLinkMessage(LinkGoodbye{absl::StatusCode::kAborted, -1, std::string(100'000, 'x')}));
  ASSERT_TRUE(goodbye.ok());
  EXPECT_EQ(std::get<LinkGoodbye>(*goodbye).text.size(), kMaxLinkStringBytes);
}

TEST(LinkMessage, RefusesEveryPrefixAndEveryExtension) {
  const std::string whole = EncodeLinkMessage(kHello);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(DecodeLinkMessage(whole.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(DecodeLinkMessage(whole + "x").ok());
  EXPECT_FALSE(DecodeLinkMessage(std::string(kMaxLinkMessageBytes + 1, 'x')).ok());
}

TEST(LinkMessage, AnswersGarbageWithAnError) {
  std::mt19937_64 random(1);
  const std::string whole = EncodeLinkMessage(kHello);
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string mutated = whole;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    // Any result is fine but a crash; what decodes has bounded strings.
    const auto message = DecodeLinkMessage(mutated);
    if (message.ok() && std::holds_alternative<LinkHello>(*message)) {
      EXPECT_LE(std::get<LinkHello>(*message).job_id.size(), kMaxLinkStringBytes);
    }
  }
}

TEST(LinkMessage, SecretsAreEqualOnlyWhenEveryByteIs) {
  EXPECT_TRUE(EqualSecrets("", ""));
  EXPECT_TRUE(EqualSecrets("abc", "abc"));
  EXPECT_FALSE(EqualSecrets("abc", "abd"));
  EXPECT_FALSE(EqualSecrets("abc", "ab"));
  EXPECT_FALSE(EqualSecrets("", "a"));
}

}  // namespace
}  // namespace sherd
