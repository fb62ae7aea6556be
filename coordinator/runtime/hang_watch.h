#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "coordinator/runtime/copy_progress.h"
#include "coordinator/runtime/journal.h"
#include "coordinator/runtime/rank_looks.h"

namespace sherd {

struct HangOptions {
  // Of jobs that do not say their own.
  absl::Duration failure_detection;
  // An epoch's first step may take this long: memory is touched, caches are cold; and so may a call
  // to the file system after the last one.
  absl::Duration first_step_time;
};

// Finds jobs that do not get on although all their workers are alive, from the first step to the
// last file. Of a job without a new step for its patience every rank is asked where it is: when
// half of the time is over, and twice at its end. When none has moved in between, nor copies what
// takes long (CopyProgress), the job hangs, and the verdict names who is to blame. Two looks within
// a second alone would convict ranks that a crowded host lets compute now and then. A hang that
// begins behind the first look is found by the next verdict, half of the patience later. One
// thread.
class HangWatch {
 public:
  using Append = std::function<void(v1::DurableEvent)>;

  HangWatch(const HangOptions& options, const Clock& clock, const Journal& journal,
            RankLooks& looks, Append append);
  HangWatch(const HangWatch&) = delete;

  // Nothing could be heard for so long: it does not count.
  void Postpone(absl::Duration pause);
  // Call often: what is done between two calls is dated with the later one.
  void Check(absl::Time now);
  // The longest time between two steps: ten times failure_detection, or five times the median of
  // the last steps; at least first_step_time before the first one. After the last one, and of an
  // epoch that only saves: that, and the time to write the state.
  absl::Duration PatienceOf(const JobRecord& job) const;
  // Ends the job's epoch, which is hung: nothing moved in it for `stalled`. -1: no rank.
  void Convict(const JobRecord& job, int rank, const std::string& verdict, absl::Duration stalled);

 private:
  struct Watch {
    Epoch epoch;
    // What the job had done, and since when nothing came after it.
    int64_t step = 0;
    int64_t eval_step = 0;
    int64_t checkpoint_step = 0;
    int64_t finished = 0;  // ranks
    absl::Time since;
    // The last step was heard of, or the epoch has run since.
    absl::Time stepped;
    std::deque<double> step_ms;
    // The look at the ranks that is for a verdict; 0: there is none.
    int64_t verdict_look = 0;
    CopyProgress copying;
    // Where ranks were when half of the patience was over, when they were asked, and by which look.
    absl::Time halfway_at = absl::InfiniteFuture();
    int64_t halfway_look = 0;
    Positions halfway;

    // Something was heard.
    void BeginAnew(absl::Time now);
  };

  static bool IsWatched(const JobRecord& job);
  // Whether the job did something since the last look.
  bool Moves(const JobRecord& job, Watch& watch, absl::Time now) const;
  // Keeps where the ranks are, unless the job has moved since the look began.
  void Remember(const JobRecord& job, int64_t look, const Positions& first,
                const Positions& second);
  // Likewise.
  void Judge(const JobRecord& job, int64_t look, const Positions& first, const Positions& second);

  const HangOptions options_;
  const Clock& clock_;
  const Journal& journal_;
  RankLooks& looks_;
  const Append append_;
  std::map<JobId, Watch> watches_;
  int64_t last_look_ = 0;
};

}  // namespace sherd
