#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/store/event_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {

inline std::unique_ptr<EventLog> OpenLog(const std::string& directory) {
  absl::StatusOr<std::unique_ptr<EventLog>> log = EventLog::Open(directory);
  EXPECT_TRUE(log.ok()) << log.status();
  return log.ok() ? *std::move(log) : nullptr;
}

inline LogBatch EventBatch(int64_t first, int count) {
  LogBatch batch;
  for (int64_t sequence = first; sequence < first + count; ++sequence) {
    v1::DurableEvent event = Joined(absl::StrCat("w", sequence), 1);
    event.set_sequence(sequence);
    batch.events.push_back(event);
  }
  return batch;
}

inline v1::JobEvent StepEntry(const std::string& job, int64_t sequence, int64_t step) {
  v1::JobEvent entry;
  entry.set_job_id(job);
  entry.set_sequence(sequence);
  entry.mutable_step()->set_step(step);
  return entry;
}

inline std::vector<int64_t> ReplayedSequences(EventLog& log) {
  std::vector<int64_t> sequences;
  const absl::Status status =
      log.Replay(0, [&](const v1::DurableEvent& event) { sequences.push_back(event.sequence()); });
  EXPECT_TRUE(status.ok()) << status;
  return sequences;
}

// One sentence: no line break, and it says what to do about it.
inline void ExpectOneSentence(const absl::Status& status) {
  EXPECT_THAT(std::string(status.message()), ::testing::Not(::testing::HasSubstr("\n")));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(";"));
}

}  // namespace sherd
