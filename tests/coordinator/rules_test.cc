// Logs are read by the rules that wrote them: a change of the rules has a number (rules.h).

#include "coordinator/core/rules.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/core/reducer.h"
#include "coordinator/core/snapshot.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/coordinator/chaos.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

constexpr uint64_t kSequences = 16;
constexpr int kSteps = 40;

struct Record {
  int rules = 0;
  std::string digest;
  // One sequence after another, each from number 1 on.
  std::vector<v1::DurableEvent> events;
};

// FNV-1a.
uint64_t Digest(uint64_t digest, const std::string& bytes) {
  for (const char byte : bytes) {
    digest = (digest ^ static_cast<unsigned char>(byte)) * uint64_t{0x100000001b3};
  }
  return digest;
}

// Of the states after each event. What a snapshot's format adds changes nothing as long as no rule
// sets it.
std::string DigestOf(const std::vector<v1::DurableEvent>& events) {
  uint64_t digest = 0xcbf29ce484222325;
  State state;
  for (const v1::DurableEvent& event : events) {
    if (event.sequence() == 1) state = {};
    Apply(event, state);
    v1::StoredState stored = WriteState(state);
    stored.clear_format();
    digest = Digest(digest, stored.SerializeAsString());
  }
  return absl::StrFormat("%016x", digest);
}

// What chaos comes upon too rarely.
std::vector<v1::DurableEvent> BrokenLinkBeforeAFailure() {
  Scenario scenario;
  scenario.JoinHosts("abc");
  const JobId id = scenario.Run({.min_workers = 3, .max_workers = 3});
  const JobRecord before = scenario.job(id);
  scenario.Do(Unreached(before, 1, "tcp:c:1"));
  scenario.Do(Failed(before, 0, "the disk is full", 0));
  scenario.ReleaseAll(id, 0);
  EXPECT_FALSE(scenario.job(id).broken.empty());
  return scenario.log();
}

void Write(const std::string& path) {
  std::vector<v1::DurableEvent> events = BrokenLinkBeforeAFailure();
  for (uint64_t seed = 0; seed < kSequences; ++seed) {
    Chaos chaos(seed);
    for (int step = 0; step < kSteps; ++step) chaos.Step();
    chaos.Quiesce();
    const std::vector<v1::DurableEvent>& log = chaos.scenario().log();
    events.insert(events.end(), log.begin(), log.end());
  }
  std::ofstream file(path);
  file << "rules " << kRules << " digest " << DigestOf(events) << "\n";
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  for (const v1::DurableEvent& event : events) {
    std::string text;
    printer.PrintToString(event, &text);
    file << text << "\n";
  }
}

Record Read(const std::string& path) {
  Record record;
  std::ifstream file(path);
  std::string word;
  file >> word >> record.rules >> word >> record.digest >> std::ws;
  std::string line;
  while (std::getline(file, line)) {
    record.events.emplace_back();
    const bool parsed = google::protobuf::TextFormat::ParseFromString(line, &record.events.back());
    EXPECT_TRUE(parsed) << line;
  }
  return record;
}

TEST(Rules, RecordedEventsMakeTheStatesThatTheyMadeWhenTheRulesGotTheirNumber) {
  const std::string path = SHERD_RECORDED_EVENTS;
  if (std::getenv("SHERD_RECORD_RULES") != nullptr) Write(path);
  const Record record = Read(path);
  ASSERT_GT(record.events.size(), 500u) << path;
  EXPECT_EQ(DigestOf(record.events), record.digest)
      << "the same events make other states than they did: raise kRules in "
         "coordinator/core/rules.h, so that no log is read by rules that did not write it, and "
         "record anew: SHERD_RECORD_RULES=1 coordinator_core_test --gtest_filter='Rules.*'";
  EXPECT_EQ(record.rules, kRules)
      << "kRules was raised: record anew, SHERD_RECORD_RULES=1 coordinator_core_test "
         "--gtest_filter='Rules.*'";
}

}  // namespace
}  // namespace sherd
