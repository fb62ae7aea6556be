#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"
#include "worker/data/token_file.h"

namespace sherd {
namespace {

// A file of each format, as bytes.
struct Written {
  TokenFormat format;
  std::string data;
  std::string index;
};

std::vector<Written> OneOfEach() {
  written::Ids ids;
  std::string lines;
  for (int i = 0; i < 300; ++i) ids.push_back(i % 128);
  for (int i = 0; i < 20; ++i)
    lines += "{\"id\": [1, {\"a\": null}], \"text\": \"line\\u00e4\\n\"}\n";
  return {{TokenFormat::kText, std::string(300, 't'), ""},
          {TokenFormat::kJsonl, lines, ""},
          {TokenFormat::kTokensU16, written::TokensU16(ids), ""},
          {TokenFormat::kLlmc, written::LlmcU16(ids), ""},
          {TokenFormat::kLlmc, written::LlmcU32(ids), ""},
          {TokenFormat::kMegatron, written::Stored<int32_t>(ids),
           written::IndexOf({100, 0, 50, 150}, 4, 4).Bytes()},
          {TokenFormat::kMegatron, written::Stored<float>(ids),
           written::IndexOf({1, 299}, 7, 4).Bytes()}};
}

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  size_t Below(size_t bound) { return engine_() % bound; }

  // Some bytes changed, some taken away, some put in.
  void Corrupt(std::string& bytes) {
    for (size_t changes = 1 + Below(4); changes > 0 && !bytes.empty(); --changes) {
      const size_t at = Below(bytes.size());
      switch (Below(5)) {
        case 0:
          bytes[at] = static_cast<char>(Below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, Below(20), static_cast<char>(Below(256)));
          break;
        default: {
          const size_t length = std::min(bytes.size() - at, size_t{8});
          bytes.replace(at, length, std::string(length, Below(2) == 0 ? '\xff' : '\x7f'));
        }
      }
    }
  }

 private:
  std::mt19937_64 engine_;
};

// What opens reads as tokens, or says why not; under a sanitizer nothing is touched that is not the
// file's.
TEST(Corruption, AChangedFileIsReadOrRefusedWithItsName) {
  const TemporaryDirectory root;
  const std::vector<Written> all = OneOfEach();
  int refused = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Chance chance(seed);
    Written file = all[seed % all.size()];
    chance.Corrupt(file.index.empty() || chance.Below(2) == 0 ? file.data : file.index);
    const std::string path = file.format == TokenFormat::kMegatron ? "f" : "f.bin";
    root.Write("f.bin", file.data);
    root.Write("f.idx", file.index);
    const auto opened = OpenTokenFile(root.path(), path, file.format);
    absl::Status status = opened.status();
    if (opened.ok()) {
      ASSERT_GE((*opened)->tokens(), 1);
      const int64_t count = std::min((*opened)->tokens(), int64_t{5000});
      std::vector<int32_t> ids(static_cast<size_t>(count), -1);
      status = (*opened)->Read(0, count, ids.data());
      if (status.ok()) {
        ASSERT_GE(*std::min_element(ids.begin(), ids.end()), 0) << "seed " << seed;
        status = (*opened)->Read((*opened)->tokens() - count, count, ids.data());
      }
    }
    if (status.ok()) continue;
    ++refused;
    ASSERT_TRUE(absl::IsInvalidArgument(status)) << "seed " << seed << ": " << status;
    ASSERT_NE(status.message().find("f."), std::string::npos) << "seed " << seed << ": " << status;
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 2900);
}

}  // namespace
}  // namespace sherd
