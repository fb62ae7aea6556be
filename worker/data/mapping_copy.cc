#include "worker/data/mapping_copy.h"

#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cstring>

#include "common/check.h"

namespace sherd {
namespace {

// Where a thread goes on when a page between `begin` and `end` cannot be read.
struct Recovery {
  sigjmp_buf* go_on;
  const char* begin;
  const char* end;
};

// A signal's handler gets nothing else of ours. Volatile, as it reads between two writes.
thread_local const Recovery* volatile recovery = nullptr;
struct sigaction previous_action;

void OnBusError(int number, siginfo_t* info, void*) {
  const Recovery* const mine = recovery;
  const char* const address = static_cast<const char*>(info->si_addr);
  if (mine != nullptr && address >= mine->begin && address < mine->end) {
    siglongjmp(*mine->go_on, 1);
  }
  // Whoever else reads such a page does it again, now without this handler.
  sigaction(number, &previous_action, nullptr);
  const bool sent_by_a_process = info->si_code <= 0;
  if (sent_by_a_process) raise(number);
}

bool InstallHandler() {
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  sigemptyset(&action.sa_mask);
  // The handler leaves by a jump, after which the signal must not stay blocked.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  SHERD_CHECK(sigaction(SIGBUS, &action, &previous_action) == 0);
  return true;
}

}  // namespace

bool CopyFromMapping(const void* from, size_t bytes, void* to) {
  [[maybe_unused]] static const bool installed = InstallHandler();
  sigjmp_buf go_on;
  const Recovery here{&go_on, static_cast<const char*>(from),
                      static_cast<const char*>(from) + bytes};
  if (sigsetjmp(go_on, 0) != 0) {
    recovery = nullptr;
    return false;
  }
  recovery = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(to, from, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  recovery = nullptr;
  return true;
}

}  // namespace sherd
