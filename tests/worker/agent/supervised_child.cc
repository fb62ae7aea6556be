// A small process for the supervisor to start: supervised_child MODE PIPE INCARNATION. It writes
// "PID INCARNATION\n" to the named pipe, then does what MODE says:
//   wait       ends with code 0 on SIGTERM
//   toggles    as wait; says at each SIGUSR1 that it has a coordinator, or that it has lost it
//   deaf       ignores SIGTERM
//   CODE       ends at once with this exit code
//   supervise  supervises two deaf children
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "worker/agent/child_process.h"
#include "worker/agent/registration_pipe.h"
#include "worker/agent/supervisor.h"

namespace {

int Supervise(const char* pipe) {
  sherd::SupervisorOptions options;
  options.workers = {sherd::WorkerId("host/cpu:0"), sherd::WorkerId("host/cpu:1")};
  options.program = "/proc/self/exe";
  options.arguments = [pipe](size_t, sherd::Incarnation incarnation) {
    return std::vector<std::string>{"child", "deaf", pipe, absl::StrCat(incarnation.value())};
  };
  options.report_exit = [](const sherd::v1::ReportExitRequest&) {};
  return sherd::Supervisor(std::move(options)).Run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 3;
  const std::string mode = argv[1];
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  if (mode == "toggles") sigaddset(&term, SIGUSR1);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  // A sanitizer's handler would turn the signal into an exit code.
  signal(SIGSEGV, SIG_DFL);
  if (mode == "supervise") return Supervise(argv[2]);

  const int pipe = open(argv[2], O_WRONLY | O_CLOEXEC);
  const std::string line = absl::StrCat(getpid(), " ", argv[3], "\n");
  if (write(pipe, line.data(), line.size()) < 0) return 3;
  int received = 0;
  for (bool registered = true; mode == "toggles"; registered = !registered) {
    sigwait(&term, &received);
    if (received == SIGTERM) return 0;
    sherd::TellRegistered(sherd::kHandedOver, registered);
  }
  if (mode == "wait") return sigwait(&term, &received);
  while (mode == "deaf") sigwait(&term, &received);
  return atoi(mode.c_str());
}
