#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "coordinator/core/state.h"
#include "coordinator/runtime/journal.h"
#include "coordinator/runtime/timer_queue.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// Where ranks are, by rank, of those that have said it.
using Positions = std::map<int, v1::RankPosition>;

// Looks where the ranks of a job's epoch are, twice within a second; whoever has not answered is
// asked again, for its stream may have broken, in all as long as a failure takes to be detected. A
// question in whose time this process was late is put anew, a few times: the answers may lie
// unread. One thread.
class RankLooks {
 public:
  using Send = std::function<void(const WorkerId&, Incarnation, v1::SessionResponse)>;
  // Gets the answers to the first look and to the second that came in time. Texts are printable.
  using Then =
      std::function<void(const JobRecord& job, const Positions& first, const Positions& second)>;

  // `failure_detection`: of jobs that do not say their own.
  RankLooks(absl::Duration failure_detection, const Clock& clock, const Journal& journal,
            TimerQueue& timers, Send send);
  RankLooks(const RankLooks&) = delete;

  // `then` is not called when the job has come to another epoch meanwhile.
  void Look(const JobRecord& job, Then then);
  // The time that the job's epoch has for what it does in its present state is over: calls `expire`
  // unless the ranks copy or restore (CopyProgress), in which case it looks again after `grace`.
  // Nothing is done any more when the job has left that state.
  void ExpireUnlessCopying(const JobRecord& job, absl::Duration grace,
                           std::function<void(const JobRecord& job)> expire);
  // This process did not run for so long: nobody's time to answer ends for it.
  void Postpone(absl::Duration pause);
  // A worker's answer to LocateRank; ignored when it was not asked.
  void OnPosition(const WorkerId& worker, const v1::RankPosition& position);

 private:
  struct OneLook {
    JobId job;
    Epoch epoch;
    bool again = false;
    // The number of the question that was put last.
    int64_t question = 0;
    // Questions that were put anew because this process was late.
    int late = 0;
    // Ranks may answer from then on; and the end of the time to answer the last question.
    absl::Time since, due;
    Positions first, second;
    Then then;

    // To the question that was put last.
    Positions& answers() { return again ? second : first; }
  };

  void Put(int64_t number, OneLook& look, const JobRecord& job);
  // Sends the last question to whoever has not answered it.
  void Ask(int64_t number, OneLook& look, const JobRecord& job);
  // The answers to the question of look `number` have come, or some are late.
  void End(int64_t number);
  bool AwaitsMore(OneLook& look, const JobRecord& job) const;

  const absl::Duration failure_detection_;
  const Clock& clock_;
  const Journal& journal_;
  TimerQueue& timers_;
  const Send send_;
  int64_t last_number_ = 0, last_question_ = 0;
  std::map<int64_t, OneLook> looks_;
};

}  // namespace sherd
