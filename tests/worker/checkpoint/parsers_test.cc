#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/bounded_json.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "tests/worker/checkpoint/training_world.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"

namespace sherd {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const std::string& header, int64_t data_bytes) {
  return ParseSafetensorsHeader(header, 8 + static_cast<int64_t>(header.size()) + data_bytes)
      .status()
      .ToString();
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsHeader, ReadsBackWhatItWrites) {
  const std::string file = FormatSafetensorsHeader(
      {{"a", "F32", {2, 3}}, {"scalar", "BF16", {}}, {"none", "U8", {0, 4}}}, {{"k", "v"}});
  const auto header = ParseSafetensorsHeader(absl::string_view(file).substr(8),
                                             static_cast<int64_t>(file.size()) + 26);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[0].offset, static_cast<int64_t>(file.size()));
  EXPECT_EQ(header->entries[0].bytes, 24);
  EXPECT_EQ(header->metadata.at("k"), "v");
}

TEST(SafetensorsHeader, SaysWhatIsWrongWithWhichTensor) {
  EXPECT_EQ(ErrorOf("{" + Entry("a", "F32", "[2]", "[0,8]") + "}", 8), "OK");
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F99", "[2]", "[0,8]") + "}", 8),
              HasSubstr("tensor \"a\" has the unknown dtype \"F99\""));
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F32", "[3]", "[0,8]") + "}", 8),
              HasSubstr("tensor \"a\" has 8 bytes where its shape asks for 12"));
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F32", "[2]", "[8,16]") + "}", 8),
              HasSubstr("lies at bytes 8 to 16 of 8"));
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F32", "[2]", "[8,0]") + "}", 8), HasSubstr("\"a\""));
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}", 8),
              HasSubstr("overflows"));
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F32", "[-2]", "[0,8]") + "}", 8), HasSubstr("wrong type"));
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F32", "[2]", "[0,8]") + "," +
                          Entry("b", "F32", "[2]", "[4,12]") + "}",
                      12),
              HasSubstr("tensor \"b\" overlaps"));
  EXPECT_THAT(
      ErrorOf("{" + Entry("a", "U8", "[2]", "[0,2]") + "," + Entry("b", "U8", "[2]", "[4,6]") + "}",
              6),
      HasSubstr("tensor \"b\" has a gap"));
  EXPECT_THAT(
      ErrorOf("{" + Entry("a", "U8", "[2]", "[0,2]") + "," + Entry("a", "U8", "[2]", "[2,4]") + "}",
              4),
      HasSubstr("the key \"a\" twice"));
  EXPECT_THAT(ErrorOf("{" + Entry("a", "F32", "[2]", "[0,8]") + "}", 9),
              HasSubstr("the tensors end at byte 70"));
  EXPECT_THAT(ErrorOf("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("{\"a\":{}}", 0), HasSubstr("\"a\""));
  EXPECT_THAT(ErrorOf("{\"__metadata__\":{\"x\":1}}", 0), HasSubstr("\"x\""));
}

TEST(SafetensorsHeader, AClaimedLengthIsNotBelieved) {
  const TemporaryDirectory root;
  for (const char last : {'\x00', '\x01', '\x7f', '\xff'}) {
    const std::string path = root.Write("x", std::string("\x10\0\0\0\0\0\0", 7) + last + "{}");
    const auto header = ReadSafetensorsHeader(path);
    ASSERT_FALSE(header.ok());
    EXPECT_THAT(std::string(header.status().message()), HasSubstr(path));
  }
  EXPECT_FALSE(ReadSafetensorsHeader(root.Write("y", "short")).ok());
  EXPECT_FALSE(ReadSafetensorsHeader(root.path()).ok());
}

TEST(BoundedJson, StopsAtItsLimits) {
  EXPECT_TRUE(ParseBoundedJson("[[1]]", {.depth = 2, .values = 3}).ok());
  EXPECT_FALSE(ParseBoundedJson("[[[1]]]", {.depth = 2}).ok());
  EXPECT_FALSE(ParseBoundedJson("[1,2,3]", {.values = 3}).ok());
  EXPECT_FALSE(ParseBoundedJson(std::string(1 << 20, '['), {}).ok());
  EXPECT_FALSE(ParseBoundedJson("{\"a\":1,\"a\":2}", {}).ok());
  EXPECT_FALSE(ParseBoundedJson("", {}).ok());
  EXPECT_FALSE(ParseBoundedJson("1 2", {}).ok());
}

// Mutates bytes, cuts, doubles and splices pieces of a valid text.
std::string Mutate(std::string text, std::mt19937_64& generator) {
  const auto draw = [&](size_t below) { return generator() % std::max<size_t>(below, 1); };
  static constexpr char kTokens[] = "{}[]\",:0123456789-eE.\\ntf";
  for (size_t i = 0; i <= draw(4) && !text.empty(); ++i) {
    const size_t at = draw(text.size());
    const size_t length = draw(std::min<size_t>(text.size() - at, 40) + 1);
    switch (draw(5)) {
      case 0:
        text[at] = static_cast<char>(draw(256));
        break;
      case 1:
        text[at] = kTokens[draw(sizeof(kTokens) - 1)];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(draw(text.size()), text.substr(at, length));
        break;
      default:
        text.insert(at, std::to_string(generator() >> draw(64)));
        break;
    }
  }
  return text;
}

TEST(ParserMutations, NeverCrashASafetensorsHeader) {
  const std::string valid =
      FormatSafetensorsHeader(
          {{"wte.weight", "F32", {7, 3}}, {"h.0.ln_1.bias[3:9]", "F32", {6}}, {"x", "I64", {2}}},
          {{"format", "pt"}})
          .substr(8);
  std::mt19937_64 generator(1);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = Mutate(valid, generator);
    const int64_t file_bytes = 8 + static_cast<int64_t>(text.size()) + 84 + 24 + 16;
    const auto header = ParseSafetensorsHeader(text, file_bytes);
    if (!header.ok()) continue;
    ++accepted;
    // What is accepted can be used without further checks.
    int64_t end = header->bytes;
    for (const SafetensorsEntry& entry : header->entries) {
      ASSERT_EQ(entry.offset, end);
      end += entry.bytes;
    }
    ASSERT_EQ(end, file_bytes);
  }
  EXPECT_GT(accepted, 100);
}

TEST(ParserMutations, NeverCrashAManifest) {
  Manifest training = SmallManifest();
  training.info = TrainingInfoOf(SmallJob(v1::ARCHITECTURE_LLAMA, true), 10);
  for (const Manifest& sound : {SmallManifest(), training}) {
    const std::string valid = FormatManifest(sound);
    ASSERT_TRUE(ParseManifest(valid).ok());
    std::mt19937_64 generator(2);
    for (int i = 0; i < 20000; ++i) {
      const auto manifest = ParseManifest(Mutate(valid, generator));
      // The checksum lets through what means the same only.
      if (!manifest.ok()) continue;
      ASSERT_EQ(FormatManifest(*manifest), valid);
    }
  }
}

}  // namespace
}  // namespace sherd
