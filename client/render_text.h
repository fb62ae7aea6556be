#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// Rows of cells, the first of them the header, as lines of aligned columns. The first column and
// columns of text are aligned left, others right; the last is not padded.
std::string Table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<bool>& right_aligned);

// "512 B", "43.2 MiB".
std::string HumanBytes(int64_t bytes);
// 1234567 as "1,234,567".
std::string WithThousands(int64_t value);
// "2m03s"; "<1s" below one.
std::string HumanDuration(absl::Duration duration);

std::string JobsTable(const std::vector<v1::Job>& jobs);
std::string WorkersTable(const std::vector<v1::Worker>& workers);
// One job in full.
std::string JobText(const v1::Job& job);

// What each rank held and sent, predicted beside measured; "" without ledgers. Ledgers of one rank
// replace each other: the last counts.
std::string LedgerTables(const std::vector<v1::RankLedger>& ledgers);

// Of a job with parallel.offload: optimizer.
inline constexpr char kOffloadSentence[] =
    "optimizer state lives in host memory, which on CPU workers is the device's too\n";

// One line each, without a newline. `steps` is the job's number of steps, 0 when it is unknown;
// `left` the time that the rest of them will take, shown while there are some; nothing for a step
// of the past.
std::string StepLine(const v1::StepReport& step, int64_t steps, std::optional<absl::Duration> left);
// Fits a terminal of 80 columns.
std::string BarLine(const v1::StepReport& step, int64_t steps, absl::Duration left);
std::string EvalLine(const v1::EvalReport& eval);

}  // namespace sherd
