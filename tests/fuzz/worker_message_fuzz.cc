// What workers and supervisors say of themselves and of their ranks. The first byte says which
// message, the second what is known of the rank that speaks.

#include <string>

#include "coordinator/core/state.h"
#include "coordinator/runtime/job_feed.h"
#include "coordinator/runtime/report_rules.h"
#include "coordinator/runtime/worker_claims.h"
#include "sherd/v1/job_service.pb.h"
#include "sherd/v1/worker.pb.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr int kSteps = 10;

// A refusal says what is wrong.
bool Taken(const absl::Status& status) {
  FUZZ_CHECK(status.ok() || (absl::IsInvalidArgument(status) && !status.message().empty()));
  return status.ok();
}

void TakeReport(uint8_t known, const sherd::v1::RankReport& report) {
  sherd::JobRecord job;
  job.spec.mutable_train()->set_steps(kSteps);
  job.epoch = sherd::Epoch(1 + known / 2 % 2);
  job.ranks.resize(3);
  sherd::RankState& rank = job.ranks[0];
  const bool running = known % 2 == 1;
  if (running) rank.phase = sherd::RankPhase::kRunning;
  sherd::Progress progress;
  progress.step = known / 4 % (kSteps + 1);
  if (!Taken(sherd::CheckReport(job, rank, progress, report))) return;
  if (report.has_step()) {
    FUZZ_CHECK(running && report.step().step() >= 1 && report.step().step() <= kSteps);
  }
  if (report.has_finished()) {
    int64_t last = 0;
    for (const sherd::v1::StepReport& step : report.finished().last_steps()) {
      FUZZ_CHECK(step.step() > last);
      last = step.step();
    }
    FUZZ_CHECK(last <= report.finished().steps() && report.finished().steps() <= kSteps);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(sherd::AsText(data + 2, size - 2));
  switch (data[0] % 3) {
    case 0: {
      sherd::v1::Hello hello;
      if (hello.ParseFromString(bytes) && Taken(sherd::CheckHello(hello))) {
        FUZZ_CHECK(!hello.worker_id().empty() && hello.incarnation() != 0);
      }
      break;
    }
    case 1: {
      sherd::v1::ReportExitRequest exit;
      if (exit.ParseFromString(bytes) && Taken(sherd::CheckExit(exit))) {
        FUZZ_CHECK(!sherd::ExitCause(exit).empty());
      }
      break;
    }
    default: {
      sherd::v1::RankReport report;
      if (report.ParseFromString(bytes)) TakeReport(data[1], report);
    }
  }
  return 0;
}
