#include "tests/worker/train/outcome.h"

#include <gtest/gtest.h>

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/find.h"

namespace sherd::testing {
namespace {

void ExpectExact(const v1::WireLine& line, const std::string& what) {
  EXPECT_EQ(line.bytes().predicted(), line.bytes().measured()) << what;
  EXPECT_EQ(line.messages().predicted(), line.messages().measured()) << what;
}

}  // namespace

std::map<std::string, std::vector<float>> ReadWeights(const std::string& directory) {
  std::map<std::string, std::vector<float>> weights;
  const std::string path = WeightsDirectory(*MakePosixFileSystem(), directory);
  const absl::StatusOr<Manifest> manifest = ReadManifest(path);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  if (!manifest.ok()) return weights;
  const absl::Status loaded = LoadTensors(path, *manifest, [&](const StoredTensor& tensor) {
    std::vector<float>& values = weights[tensor.name];
    values.resize(static_cast<size_t>(tensor.elements));
    return values.data();
  });
  EXPECT_TRUE(loaded.ok()) << loaded;
  return weights;
}

void ExpectExactLedgers(const std::vector<RankRecord>& ranks, const std::string& what) {
  for (const RankRecord& rank : ranks) {
    ASSERT_TRUE(rank.result.status.ok()) << what << " " << rank.result.status;
    ASSERT_FALSE(rank.ledgers.empty());
    const v1::RankLedger& ledger = rank.ledgers.back();
    for (const auto& [pool, line] : ledger.memory()) {
      EXPECT_EQ(line.predicted(), line.measured()) << what << " " << pool;
    }
    for (const auto& [op, line] : ledger.wire()) ExpectExact(line, what + " " + op);
    for (const auto& [group, line] : ledger.wire_by_group()) ExpectExact(line, what + " " + group);
  }
}

}  // namespace sherd::testing
