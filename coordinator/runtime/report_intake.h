#pragma once

#include <functional>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/ids.h"
#include "coordinator/runtime/journal.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// Turns what ranks say of their work into durable events and feed entries. One thread.
class ReportIntake {
 public:
  using Append = std::function<void(v1::DurableEvent)>;

  ReportIntake(const Clock& clock, Journal& journal, Append append)
      : clock_(clock), journal_(journal), append_(std::move(append)) {}
  ReportIntake(const ReportIntake&) = delete;

  // Takes over a report of a life of a worker. What is of an epoch that has been left only frees
  // the worker. kInvalidArgument, as CheckReport says it, for what no rank in order says; then
  // nothing is changed.
  absl::Status Take(const WorkerId& worker, Incarnation incarnation, const v1::RankReport& report);

 private:
  // The job in whose current epoch `report` is of the worker's own rank, which has not left it;
  // nullptr else.
  const JobRecord* JobOf(const WorkerId& worker, Incarnation incarnation,
                         const v1::RankReport& report) const;
  // What a rank says that only users read, once.
  void Publish(const JobRecord& job, const v1::RankReport& report);
  // Whether the feed lacks the step, which the epoch has committed.
  bool TakeStep(const JobRecord& job, int64_t step);
  // Those that rank 0, which may be dead, has not told of; should it live, what it says of them
  // later is known then.
  void PublishLastSteps(const JobRecord& job, const v1::RankFinished& finished);

  const Clock& clock_;
  Journal& journal_;
  const Append append_;
};

}  // namespace sherd
