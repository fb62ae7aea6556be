#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "sherd/v1/worker.pb.h"
#include "worker/agent/backoff.h"
#include "worker/agent/child_process.h"
#include "worker/agent/registration_pipe.h"

namespace sherd {

struct SupervisorOptions {
  // The worker ids of the slots, "HOST/cpu:0", one child process each.
  std::vector<WorkerId> workers;
  // Path of the children's program.
  std::string program;
  // The arguments of a slot's next child, which must take over the incarnation; its name first. The
  // child tells through kHandedOver whether it has a coordinator (registration_pipe.h).
  std::function<std::vector<std::string>(size_t slot, Incarnation incarnation)> arguments;
  // Tells the coordinator how a child ended. Must not block.
  std::function<void(v1::ReportExitRequest)> report_exit;
  // Hears at each change whether the child of every slot has a coordinator; at first none has.
  // Called from Run; must not block.
  std::function<void(bool)> on_ready = [](bool) {};
  absl::Duration first_backoff = absl::Milliseconds(200);
  absl::Duration longest_backoff = absl::Seconds(5);
  // A child that lived for this long had no trouble to start.
  absl::Duration healthy_life = absl::Seconds(10);
  // Between asking children to end and killing them: they may have work that must move elsewhere
  // first.
  absl::Duration stop_limit = absl::Seconds(25);
};

// Keeps one worker process a device alive: a child that ends is reported at once (F21, F54) and
// started again as a new incarnation. One that cannot work and said why (kExitRefused, kExitUsage)
// would do so again and is left to rest, and so is one that was let go (kExitAsked).
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Blocks until RequestStop or until every slot rests, and no child is left. Returns kExitRefused
  // when a slot rests because its child could not work, else kExitAsked. Call on the main thread:
  // the kernel ties the children's lives to the calling thread's.
  int Run();
  // From any thread: children are asked to end, later killed; a second call kills them at once.
  void RequestStop();

 private:
  struct Slot {
    WorkerId worker;
    Backoff backoff;
    Incarnation incarnation;
    std::unique_ptr<ChildProcess> child;
    std::unique_ptr<RegistrationPipe> registration;  // the child's
    absl::Duration started_at;
    // In monotonic time; nullopt while a child runs and when the slot rests.
    std::optional<absl::Duration> start_at;
  };

  void StartDue();
  void Start(Slot& slot, size_t index);
  absl::Status Launch(Slot& slot, size_t index);
  // Sleeps until a child ends or says something, a stop is requested, or something is due.
  void Wait();
  void TakeStopRequests();
  void ReapEnded();
  void Ended(Slot& slot, const ChildExit& exit);
  void TellReady();
  void SignalAll(int signal);
  bool AllRest() const;

  const SupervisorOptions options_;
  std::vector<Slot> slots_;
  int stop_descriptor_;
  uint64_t stop_requests_ = 0;
  absl::Duration kill_at_ = absl::InfiniteDuration();
  int exit_code_;
  bool ready_ = false;
};

}  // namespace sherd
