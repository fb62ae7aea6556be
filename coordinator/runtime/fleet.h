#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "coordinator/core/assignment.h"
#include "coordinator/core/leases.h"
#include "coordinator/runtime/journal.h"
#include "coordinator/runtime/report_intake.h"
#include "coordinator/runtime/timer_queue.h"
#include "coordinator/runtime/worker_link.h"
#include "sherd/v1/job_service.pb.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

struct FleetOptions {
  // A silent worker is lost after this long; a job's own setting goes before it for its ranks.
  absl::Duration failure_detection = absl::Seconds(3);
  // A stream that is not resumed for this long stops its worker's job.
  absl::Duration resume_window = absl::Milliseconds(250);
  // The worker is lost this much later: meanwhile the supervisor may tell of the signal that killed
  // the process.
  absl::Duration exit_window = absl::Milliseconds(200);
  // A new process whose predecessor's rank has not ended waits this long for the supervisor's word.
  absl::Duration takeover_window = absl::Milliseconds(500);
};

// What the rest of the coordinator does about workers' news.
struct FleetEvents {
  // Appends a durable event and has its actions performed.
  std::function<void(v1::DurableEvent)> append;
  std::function<void(const WorkerId&, const v1::DataInspection&)> inspected;
  // The worker's stream is closed: it answers nothing that it was asked.
  std::function<void(const WorkerId&)> disconnected;
  // The answer of this worker to LocateRank.
  std::function<void(const WorkerId&, const v1::RankPosition&)> located;
};

// The workers as the coordinator hears them: sessions, leases, reports. Turns what it hears into
// durable events and feed entries. One thread.
class Fleet {
 public:
  Fleet(const FleetOptions& options, const Clock& clock, Journal& journal, TimerQueue& timers,
        FleetEvents events);
  Fleet(const Fleet&) = delete;

  // After Journal::Recover: each worker that the log knows alive gets one full fresh lease.
  void Recover();

  // A stream's first message. Refused by closing `link`: kInvalidArgument; kAlreadyExists when a
  // newer process of the worker is known, or an older one shows that it is alive: a process is
  // replaced by a new one of its name only after its end, or after a silence as long as its lease.
  void Connect(const v1::Hello& hello, std::shared_ptr<WorkerLink> link);
  // Any later message; one of a stream that is no longer its worker's is ignored.
  void Receive(const WorkerLink* link, const v1::SessionRequest& request);
  void Disconnect(const WorkerLink* link);
  // Ignored unless it is of the worker's current incarnation and passes CheckExit.
  void ReportExit(const v1::ReportExitRequest& request);

  // After the next commit, if this life of the worker has a stream then or now; a worker that comes
  // back later is told what it missed.
  void Send(const WorkerId& worker, Incarnation incarnation, v1::SessionResponse message);
  // Gives a worker up for `cause` and asks its process to end.
  void GiveUp(const WorkerId& worker, Incarnation incarnation, const std::string& cause);

  // Has a live worker leave: its rank and copies move, then its process ends. Once a life.
  void Drain(const WorkerId& worker, const std::string& reason);

  // Leases end so much later: nobody could renew one.
  void Postpone(absl::Duration pause) { leases_.Postpone(pause); }
  // Ends lapsed leases. Call at least every CheckInterval().
  void CheckLeases(absl::Time now);
  absl::Duration CheckInterval() const { return options_.failure_detection / 10; }
  // Call before every commit: tells workers which of their reports are stored with it.
  void FlushAcknowledgements();

  // Workers with an open stream, by name.
  std::vector<WorkerId> Connected() const;
  // Closes every stream with kUnavailable.
  void Stop();

 private:
  struct Session {
    Incarnation incarnation;
    std::shared_ptr<WorkerLink> link;  // null while broken
    int64_t breaks = 0;
    uint64_t acknowledged = 0;
    // No report came on this stream yet.
    bool fresh = true;
  };

  struct Newcomer {
    v1::Hello hello;
    std::shared_ptr<WorkerLink> link;
    absl::Time since;
  };

  // Has a new process wait until it is known how the one before it ended, or that it lives.
  void AwaitExit(const v1::Hello& hello, std::shared_ptr<WorkerLink> link);
  void AdmitNewcomer(const WorkerId& worker);
  // The worker was heard. What an old process said before the new one came may arrive a little
  // after it.
  void RefuseNewcomer(const WorkerId& worker);
  bool HasStream(const WorkerId& worker) const;
  void Admit(const v1::Hello& hello, std::shared_ptr<WorkerLink> link);
  void Join(const v1::Hello& hello);
  // A stream broke and was not resumed: the other ranks stop at once, the reason may get better.
  void Suspect(const WorkerId& worker);
  // Calls `task` after `delay` if the stream is still broken, by the same break.
  void IfStillBroken(const WorkerId& worker, absl::Duration delay, std::function<void()> task);
  // It had not been heard for `silence`.
  void Lose(const WorkerId& worker, Incarnation incarnation, const std::string& cause,
            absl::Duration silence = absl::ZeroDuration());
  absl::Duration LeaseOf(const WorkerId& worker) const;
  void Renew(const WorkerId& worker);
  void TakeHoldings(const WorkerId& worker, Incarnation incarnation,
                    const v1::HoldingsReport& report);
  // Ends the rank that the worker is, if it is one.
  void FailRank(const WorkerId& worker, const std::string& error, int lost_peer);
  // A worker that came back knows nothing of its rank: its last report must come soon, unless the
  // log has lost that it was taken over.
  void AwaitLastReport(const WorkerId& worker);

  const FleetOptions options_;
  const Clock& clock_;
  Journal& journal_;
  TimerQueue& timers_;
  const FleetEvents events_;
  ReportIntake intake_;
  AssignmentBuilder assignments_;
  Leases leases_;
  std::map<WorkerId, Session> sessions_;
  std::map<WorkerId, Newcomer> newcomers_;
  std::map<const WorkerLink*, WorkerId> workers_by_link_;
  // Workers that sent reports in this turn.
  std::set<WorkerId> acknowledgements_due_;
};

}  // namespace sherd
