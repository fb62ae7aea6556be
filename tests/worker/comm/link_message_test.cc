#include "worker/comm/link_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

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
                         .slot_bytes = int64_t{1} << 40,
                         .step = 77,
                         .secret = std::string("\0t", 2)};
  const auto holding = DecodeLinkMessage(EncodeLinkMessage(wish));
  ASSERT_TRUE(holding.ok()) << holding.status();
  const auto& wished = std::get<LinkHolding>(*holding);
  EXPECT_EQ(wished.wish, wish.wish);
  EXPECT_EQ(wished.job_id, wish.job_id);
  EXPECT_EQ(wished.epoch, wish.epoch);
  EXPECT_EQ(wished.world, wish.world);
  EXPECT_EQ(wished.owner, wish.owner);
  EXPECT_EQ(wished.slot_bytes, wish.slot_bytes);
  EXPECT_EQ(wished.step, 77);
  EXPECT_EQ(wished.secret, wish.secret);
}

const LinkVersion kVersion = {.slot = 1,
                              .step = 1LL << 40,
                              .checksum = 0xfedcba9876543210,
                              .skipped_windows = 3,
                              .loss = 2.5,
                              .reports = 2};
const LinkReports kReports = {{{.step = 7,
                                .loss = 0.1,
                                .grad_norm = -0.0,
                                .lr = 1e-300,
                                .tokens = -1,
                                .tokens_per_second = 1e300,
                                .step_ms = 0.5,
                                .exposed_ms = 0.25,
                                .skipped_windows = 9},
                               {.step = 8}}};
const LinkRanges kRanges = {{{1LL << 41, 5}, {0, 0}}};

TEST(LinkMessage, ReadsBackWhatIsSaidOfVersions) {
  const auto version = DecodeLinkMessage(EncodeLinkMessage(kVersion));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(std::get<LinkVersion>(*version).slot, 1);
  EXPECT_EQ(std::get<LinkVersion>(*version).step, kVersion.step);
  EXPECT_EQ(std::get<LinkVersion>(*version).checksum, kVersion.checksum);
  EXPECT_EQ(std::get<LinkVersion>(*version).skipped_windows, 3);
  EXPECT_EQ(std::get<LinkVersion>(*version).loss, 2.5);
  EXPECT_EQ(std::get<LinkVersion>(*version).reports, 2);

  const auto reports = DecodeLinkMessage(EncodeLinkMessage(kReports));
  ASSERT_TRUE(reports.ok()) << reports.status();
  const std::vector<LinkReport>& read = std::get<LinkReports>(*reports).reports;
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].step, 7);
  EXPECT_EQ(read[0].loss, 0.1);
  EXPECT_TRUE(std::signbit(read[0].grad_norm));
  EXPECT_EQ(read[0].lr, 1e-300);
  EXPECT_EQ(read[0].tokens, -1);
  EXPECT_EQ(read[0].tokens_per_second, 1e300);
  EXPECT_EQ(read[0].step_ms, 0.5);
  EXPECT_EQ(read[0].exposed_ms, 0.25);
  EXPECT_EQ(read[0].skipped_windows, 9);
  EXPECT_EQ(read[1].step, 8);

  const auto ranges = DecodeLinkMessage(EncodeLinkMessage(kRanges));
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  ASSERT_EQ(std::get<LinkRanges>(*ranges).ranges.size(), 2u);
  EXPECT_EQ(std::get<LinkRanges>(*ranges).ranges[0].begin, 1LL << 41);
  EXPECT_EQ(std::get<LinkRanges>(*ranges).ranges[0].bytes, 5);

  const auto stored = DecodeLinkMessage(EncodeLinkMessage(LinkStored{-4}));
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(std::get<LinkStored>(*stored).step, -4);
}

// The longest lists are messages that can be sent.
TEST(LinkMessage, FullListsAreMessages) {
  const LinkReports reports{std::vector<LinkReport>(LinkReports::kMost)};
  EXPECT_TRUE(DecodeLinkMessage(EncodeLinkMessage(reports)).ok());
  const LinkRanges ranges{std::vector<LinkRanges::Range>(LinkRanges::kMost)};
  EXPECT_TRUE(DecodeLinkMessage(EncodeLinkMessage(ranges)).ok());
}

TEST(LinkMessage, RefusesALaneThatIsNone) {
  std::string whole = EncodeLinkMessage(kHello);
  whole.back() = '\x02';
  EXPECT_FALSE(DecodeLinkMessage(whole).ok());
}

TEST(LinkMessage, RefusesAGoodbyeOfAnUnknownCode) {
  std::string bytes = EncodeLinkMessage(LinkGoodbye{
      .code = absl::StatusCode::kUnauthenticated, .lost_peer = 1, .text = "rank 1 has left"});
  EXPECT_TRUE(DecodeLinkMessage(bytes).ok());
  // Behind magic, version and kind.
  ASSERT_EQ(bytes[6], static_cast<char>(absl::StatusCode::kUnauthenticated));
  ++bytes[6];
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeLinkMessage(bytes).status()));
}

TEST(LinkMessage, CutsALongGoodbye) {
  const auto goodbye = DecodeLinkMessage(
      EncodeLinkMessage(LinkGoodbye{absl::StatusCode::kAborted, -1, std::string(100'000, 'x')}));
  ASSERT_TRUE(goodbye.ok());
  EXPECT_EQ(std::get<LinkGoodbye>(*goodbye).text.size(), kMaxLinkStringBytes);
}

TEST(LinkMessage, RefusesEveryPrefixAndEveryExtension) {
  for (const LinkMessage& message :
       std::vector<LinkMessage>{kHello, kVersion, kReports, kRanges, LinkStored{}, LinkHolding{}}) {
    const std::string whole = EncodeLinkMessage(message);
    for (size_t length = 0; length < whole.size(); ++length) {
      EXPECT_FALSE(DecodeLinkMessage(whole.substr(0, length)).ok()) << length;
    }
    EXPECT_FALSE(DecodeLinkMessage(whole + "x").ok());
  }
  EXPECT_FALSE(DecodeLinkMessage(std::string(kMaxLinkMessageBytes + 1, 'x')).ok());
}

TEST(LinkMessage, AnswersGarbageWithAnError) {
  std::mt19937_64 random(1);
  const std::string wholes[] = {EncodeLinkMessage(kHello), EncodeLinkMessage(kVersion),
                                EncodeLinkMessage(kReports), EncodeLinkMessage(kRanges)};
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string mutated = wholes[trial % 4];
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    // Any result is fine but a crash; what decodes has bounded strings.
    const auto message = DecodeLinkMessage(mutated);
    if (message.ok() && std::holds_alternative<LinkHello>(*message)) {
      EXPECT_LE(std::get<LinkHello>(*message).job_id.size(), kMaxLinkStringBytes);
    }
    if (message.ok() && std::holds_alternative<LinkReports>(*message)) {
      EXPECT_LE(std::get<LinkReports>(*message).reports.size(), LinkReports::kMost);
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
