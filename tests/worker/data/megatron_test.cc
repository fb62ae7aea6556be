#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"
#include "worker/data/token_file.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using written::Stored;
using written::WrittenIndex;

class MegatronFileTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& index,
                                                  const std::string& data) {
    root_.Write("pair.idx", index);
    root_.Write("pair.bin", data);
    return OpenTokenFile(root_.path(), "pair", TokenFormat::kMegatron);
  }
  // The error's text; "" when the pair opens. The data are six tokens of 16 bits.
  std::string ErrorOf(const std::string& index) {
    return std::string(Open(index, written::TokensU16({0, 1, 2, 3, 4, 5})).status().message());
  }
  std::string ErrorOf(const WrittenIndex& index) { return ErrorOf(index.Bytes()); }

  const TemporaryDirectory root_;
};

std::vector<int32_t> All(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.tokens()));
  EXPECT_TRUE(file.Read(0, file.tokens(), ids.data()).ok());
  return ids;
}

TEST_F(MegatronFileTest, ReadsSequencesInTheIndexsOrder) {
  WrittenIndex index;
  index.lengths = {2, 0, 3, 1};
  // Of the data the third sequence comes first.
  index.pointers = {6, 0, 0, 10};
  index.documents = {0, 3, 4};
  const auto file = Open(index.Bytes(), written::TokensU16({0, 1, 2, 3, 4, 5}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tokens(), 6);
  EXPECT_EQ((*file)->documents(), 2);
  EXPECT_THAT(All(**file), ElementsAre(3, 4, 0, 1, 2, 5));
}

TEST_F(MegatronFileTest, ReadsEveryTypeOfIds) {
  const written::Ids ids = {1, 0, 100, 127};
  const auto all = [&](uint8_t type, int64_t width, const std::string& data) {
    const auto file = Open(written::IndexOf({1, 3}, type, width).Bytes(), data);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? All(**file) : std::vector<int32_t>();
  };
  const auto same = ElementsAre(1, 0, 100, 127);
  EXPECT_THAT(all(1, 1, Stored<uint8_t>(ids)), same);
  EXPECT_THAT(all(2, 1, Stored<int8_t>(ids)), same);
  EXPECT_THAT(all(3, 2, Stored<int16_t>(ids)), same);
  EXPECT_THAT(all(4, 4, Stored<int32_t>(ids)), same);
  EXPECT_THAT(all(5, 8, Stored<int64_t>(ids)), same);
  EXPECT_THAT(all(6, 8, Stored<double>(ids)), same);
  EXPECT_THAT(all(7, 4, Stored<float>(ids)), same);
  EXPECT_THAT(all(8, 2, Stored<uint16_t>(ids)), same);
}

TEST_F(MegatronFileTest, RefusesWhatIsNoTokenWhenItIsRead) {
  const auto error = [&](uint8_t type, int64_t width, const std::string& data) {
    const auto file = Open(written::IndexOf({2}, type, width).Bytes(), data);
    EXPECT_TRUE(file.ok()) << file.status();
    std::vector<int32_t> ids(2);
    return std::string((*file)->Read(0, 2, ids.data()).message());
  };
  EXPECT_THAT(error(4, 4, Stored<int32_t>(std::vector{1, -1})),
              HasSubstr("pair.bin: byte 4: -1 is no token"));
  EXPECT_THAT(error(5, 8, Stored<int64_t>(std::vector{int64_t{1}, int64_t{1} << 31})),
              HasSubstr("byte 8: 2147483648 is no token"));
  EXPECT_THAT(error(6, 8, Stored<double>(std::vector{1.5, 1.0})), HasSubstr("byte 0: 1.5"));
  EXPECT_THAT(
      error(7, 4, Stored<float>(std::vector{1.0f, std::numeric_limits<float>::quiet_NaN()})),
      HasSubstr("byte 4: nan"));
  EXPECT_THAT(error(7, 4, Stored<float>(std::vector{2147483648.0f, 0.0f})), HasSubstr("byte 0"));
}

TEST_F(MegatronFileTest, ReadsManySequencesFromAnyToken) {
  // Lengths 0, 1, 2, 3, 4, 0, … over several blocks of the index.
  std::vector<int32_t> lengths;
  written::Ids ids;
  for (int i = 0; i < 5000; ++i) {
    lengths.push_back(i % 5);
    for (int k = 0; k < i % 5; ++k) ids.push_back(static_cast<int64_t>(ids.size()));
  }
  const auto file = Open(written::IndexOf(lengths, 4, 4).Bytes(), Stored<int32_t>(ids));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tokens(), 10000);
  EXPECT_EQ((*file)->documents(), 5000);
  for (int64_t begin = 0; begin + 100 <= 10000; begin += 37) {
    std::vector<int32_t> part(100);
    ASSERT_TRUE((*file)->Read(begin, 100, part.data()).ok());
    for (int32_t i = 0; i < 100; ++i) ASSERT_EQ(part[static_cast<size_t>(i)], begin + i);
  }
}

TEST_F(MegatronFileTest, RefusesAnIndexThatWasCutOffAnywhere) {
  const std::string whole = written::IndexOf({2, 4}, 8, 2).Bytes();
  ASSERT_EQ(ErrorOf(whole), "");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::string error = ErrorOf(whole.substr(0, bytes));
    EXPECT_THAT(error, AllOf(HasSubstr("pair.idx: byte "), HasSubstr(std::to_string(bytes))))
        << bytes;
  }
  EXPECT_THAT(ErrorOf(whole + "x"), HasSubstr("byte 26:"));
  EXPECT_THAT(ErrorOf(whole + "xx"), HasSubstr("data of several modes are not supported"));
}

TEST_F(MegatronFileTest, RefusesDataThatWereCutOffOrAreAnothers) {
  const std::string index = written::IndexOf({2, 4}, 8, 2).Bytes();
  const std::string data = written::TokensU16({0, 1, 2, 3, 4, 5});
  for (size_t bytes = 0; bytes < data.size(); ++bytes) {
    EXPECT_THAT(std::string(Open(index, data.substr(0, bytes)).status().message()),
                HasSubstr("the file of tokens ends at byte " + std::to_string(bytes)));
  }
  EXPECT_THAT(std::string(Open(index, data + "xx").status().message()),
              AllOf(HasSubstr("ends at byte 12"), HasSubstr("has 14 bytes")));
}

TEST_F(MegatronFileTest, NamesTheFieldThatIsWrong) {
  const auto changed = [](auto change) {
    WrittenIndex index = written::IndexOf({2, 4}, 8, 2);
    change(index);
    return index;
  };
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) { i.magic[3] = 'X'; })), HasSubstr("byte 0:"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) { i.version = 2; })),
              HasSubstr("byte 9: the version is 2"));
  for (const uint8_t type : {0, 9, 255}) {
    EXPECT_THAT(ErrorOf(changed([&](WrittenIndex& i) { i.type = type; })), HasSubstr("byte 17:"));
  }
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) { i.lengths[1] = -4; })),
              HasSubstr("byte 38: sequence 1 has a length of -4"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) { i.lengths[1] = INT32_MAX; })),
              HasSubstr("byte 50: sequence 1 has 2147483647 tokens"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) { i.pointers[0] = -2; })),
              HasSubstr("byte 42: sequence 0"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) { i.pointers[0] = INT64_MAX; })),
              HasSubstr("byte 42: sequence 0"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) {
                i.documents = {1, 1, 2};
              })),
              HasSubstr("byte 58:"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) {
                i.documents = {0, 2, 1};
              })),
              HasSubstr("byte 74:"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) {
                i.documents = {0, 1, 3};
              })),
              HasSubstr("byte 74:"));
  EXPECT_THAT(ErrorOf(changed([](WrittenIndex& i) {
                i.documents = {0, 1, 1};
              })),
              HasSubstr("byte 74: the last document ends before sequence 1 of 2"));
}

TEST_F(MegatronFileTest, RefusesCountsThatOverflow) {
  std::string bytes = written::IndexOf({2, 4}, 8, 2).Bytes();
  const auto with_count = [&](size_t at, uint64_t count) {
    std::string changed = bytes;
    changed.replace(at, 8, Stored<uint64_t>(std::vector{count}));
    return changed;
  };
  // Times 12 or 8, some of these are the size of the file modulo 2^64.
  for (const uint64_t count : {~uint64_t{0}, uint64_t{1} << 63, (uint64_t{1} << 62) + 2,
                               (uint64_t{1} << 61) + 3, uint64_t{1} << 32}) {
    EXPECT_THAT(ErrorOf(with_count(18, count)), HasSubstr("byte 18:")) << count;
    EXPECT_THAT(ErrorOf(with_count(26, (uint64_t{1} << 61) + 3)), HasSubstr("byte 26:"));
  }
  EXPECT_THAT(ErrorOf(with_count(26, 0)), HasSubstr("byte 26:"));
}

TEST_F(MegatronFileTest, RefusesAnIndexWithoutATokenInIt) {
  WrittenIndex none;
  none.documents = {0};
  EXPECT_THAT(ErrorOf(none), HasSubstr("byte 18: the index names 0 sequences"));
  EXPECT_THAT(ErrorOf(written::IndexOf({0, 0}, 8, 2)), HasSubstr("which have no token"));
}

TEST_F(MegatronFileTest, AnIndexThatChangesIsAnErrorThatNamesIt) {
  const auto file =
      Open(written::IndexOf({2, 4}, 8, 2).Bytes(), written::TokensU16({0, 1, 2, 3, 4, 5}));
  ASSERT_TRUE(file.ok()) << file.status();
  root_.Write("pair.idx", written::IndexOf({2, 3}, 8, 2).Bytes());
  std::vector<int32_t> ids(6);
  const absl::Status status = (*file)->Read(0, 6, ids.data());
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("pair.idx has changed"));
}

TEST_F(MegatronFileTest, APairNeedsBothFiles) {
  root_.Write("half.bin", "xx");
  EXPECT_THAT(
      std::string(
          OpenTokenFile(root_.path(), "half.bin", TokenFormat::kMegatron).status().message()),
      HasSubstr("half.idx does not exist"));
}

}  // namespace
}  // namespace sherd
