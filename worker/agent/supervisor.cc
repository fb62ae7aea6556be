#include "worker/agent/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/identity.h"
#include "worker/agent/monotonic.h"

namespace sherd {
namespace {

// A restart would end in the same way.
bool IsFinal(const ChildExit& exit) {
  return exit.signal == 0 && (exit.code == kExitRefused || exit.code == kExitUsage);
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      stop_descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      exit_code_(kExitAsked) {
  SHERD_CHECK(stop_descriptor_ >= 0);
  for (const WorkerId& worker : options_.workers) {
    slots_.push_back(
        {.worker = worker,
         .backoff = Backoff(options_.first_backoff, options_.longest_backoff, DrawIncarnation()),
         .incarnation = Incarnation(),
         .child = nullptr,
         .registration = nullptr,
         .started_at = absl::ZeroDuration(),
         .start_at = absl::ZeroDuration()});
  }
}

Supervisor::~Supervisor() { close(stop_descriptor_); }

int Supervisor::Run() {
  while (true) {
    StartDue();
    if (AllRest()) return exit_code_;
    Wait();
    TakeStopRequests();
    ReapEnded();
    TellReady();
  }
}

void Supervisor::RequestStop() { eventfd_write(stop_descriptor_, 1); }

void Supervisor::StartDue() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].start_at.has_value() && *slots_[i].start_at <= MonotonicNow()) {
      Start(slots_[i], i);
    }
  }
}

void Supervisor::Start(Slot& slot, size_t index) {
  slot.incarnation = Incarnation(DrawIncarnation());
  if (const absl::Status launched = Launch(slot, index); !launched.ok()) {
    slot.start_at = MonotonicNow() + slot.backoff.Next();
    Log(Severity::kError, absl::StrCat(slot.worker.value(), ": ", launched.message()));
    return;
  }
  slot.started_at = MonotonicNow();
  slot.start_at.reset();
  Log(Severity::kInfo, absl::StrCat(slot.worker.value(), " is process ", slot.child->pid()));
}

absl::Status Supervisor::Launch(Slot& slot, size_t index) {
  SHERD_ASSIGN_OR_RETURN(std::unique_ptr<RegistrationPipe> registration, RegistrationPipe::Open());
  SHERD_ASSIGN_OR_RETURN(
      slot.child, ChildProcess::Start(options_.program, options_.arguments(index, slot.incarnation),
                                      registration->child_end()));
  registration->CloseChildEnd();
  slot.registration = std::move(registration);
  return absl::OkStatus();
}

void Supervisor::Wait() {
  std::vector<pollfd> sources = {{stop_descriptor_, POLLIN, 0}};
  absl::Duration due = kill_at_;
  for (const Slot& slot : slots_) {
    if (slot.child != nullptr) {
      sources.push_back({slot.child->descriptor(), POLLIN, 0});
      sources.push_back({slot.registration->descriptor(), POLLIN, 0});
    }
    if (slot.start_at.has_value()) due = std::min(due, *slot.start_at);
  }
  const absl::Duration left = std::max(due - MonotonicNow(), absl::ZeroDuration());
  // Rounded up: waking a moment early would spin.
  const int timeout_ms =
      left == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
  poll(sources.data(), sources.size(), timeout_ms);
}

void Supervisor::TakeStopRequests() {
  eventfd_t requests = 0;
  if (eventfd_read(stop_descriptor_, &requests) == 0) {
    const bool first = stop_requests_ == 0;
    stop_requests_ += requests;
    for (Slot& slot : slots_) slot.start_at.reset();
    if (first) {
      kill_at_ = MonotonicNow() + options_.stop_limit;
      SignalAll(SIGTERM);
    }
    if (stop_requests_ > 1) kill_at_ = MonotonicNow();
  }
  if (MonotonicNow() >= kill_at_) {
    kill_at_ = absl::InfiniteDuration();
    SignalAll(SIGKILL);
  }
}

void Supervisor::ReapEnded() {
  for (Slot& slot : slots_) {
    if (slot.child == nullptr) continue;
    if (const std::optional<ChildExit> exit = slot.child->Reap()) Ended(slot, *exit);
  }
}

void Supervisor::Ended(Slot& slot, const ChildExit& exit) {
  const pid_t pid = slot.child->pid();
  slot.child.reset();
  slot.registration.reset();
  const bool stopping = stop_requests_ > 0;
  const bool asked = exit.signal == 0 && exit.code == kExitAsked;
  if (!(stopping && asked)) {
    v1::ReportExitRequest request;
    request.set_worker_id(slot.worker.value());
    request.set_incarnation(slot.incarnation.value());
    request.set_pid(pid);
    request.set_signal(exit.signal);
    request.set_exit_code(exit.code);
    options_.report_exit(std::move(request));
  }
  if (stopping) return;
  std::string then = "not started again";
  if (IsFinal(exit)) {
    exit_code_ = kExitRefused;
  } else if (!asked) {
    if (MonotonicNow() - slot.started_at >= options_.healthy_life) slot.backoff.Reset();
    const absl::Duration delay = slot.backoff.Next();
    slot.start_at = MonotonicNow() + delay;
    then = absl::StrCat("started again in ",
                        absl::FormatDuration(absl::Trunc(delay, absl::Milliseconds(1))));
  }
  Log(asked ? Severity::kInfo : Severity::kError,
      absl::StrCat(slot.worker.value(), ", process ", pid, ": ", exit.Describe(), "; ", then));
}

void Supervisor::TellReady() {
  bool ready = true;
  // Each is asked, so that none stays readable.
  for (Slot& slot : slots_) {
    if (slot.registration == nullptr || !slot.registration->Registered()) ready = false;
  }
  if (std::exchange(ready_, ready) != ready) options_.on_ready(ready);
}

void Supervisor::SignalAll(int signal) {
  for (Slot& slot : slots_) {
    if (slot.child != nullptr) slot.child->Signal(signal);
  }
}

bool Supervisor::AllRest() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.child == nullptr && !slot.start_at.has_value();
  });
}

}  // namespace sherd
