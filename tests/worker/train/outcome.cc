#include "tests/worker/train/outcome.h"

#include <gtest/gtest.h>

#include <cstring>

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

RunOutcome OutcomeOf(const std::vector<RankRecord>& ranks) {
  RunOutcome outcome;
  bool ended_well = true;
  for (const RankRecord& rank : ranks) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status << " " << rank.result.operation;
    ended_well = ended_well && rank.result.status.ok();
  }
  for (const v1::StepReport& step : ranks[0].steps) {
    outcome.curve.push_back(step.loss());
    outcome.curve.push_back(step.grad_norm());
  }
  for (const v1::EvalReport& eval : ranks[0].evals) outcome.curve.push_back(eval.loss());
  if (ended_well) outcome.weights = ReadWeights(ranks[0].result.weights_path);
  return outcome;
}

void ExpectSameBits(const RunOutcome& ours, const RunOutcome& theirs, const std::string& what) {
  const auto same = [](const auto& a, const auto& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  EXPECT_FALSE(theirs.weights.empty()) << what;
  EXPECT_TRUE(same(ours.curve, theirs.curve)) << what << ": the curves differ";
  ASSERT_EQ(ours.weights.size(), theirs.weights.size()) << what;
  for (const auto& [name, values] : theirs.weights) {
    const auto known = ours.weights.find(name);
    ASSERT_NE(known, ours.weights.end()) << what << " " << name;
    EXPECT_TRUE(same(known->second, values)) << what << ": " << name << " differs";
  }
}

}  // namespace sherd::testing
