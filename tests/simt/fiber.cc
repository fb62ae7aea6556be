// Not instrumented itself: SHERD_SIMT_ASAN and SHERD_SIMT_TSAN say which sanitizer the kernels are
// compiled with.
#include "tests/simt/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "common/check.h"

#if defined(SHERD_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SHERD_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace sherd::simt {
namespace {

#if defined(SHERD_SIMT_ASAN) || defined(SHERD_SIMT_TSAN)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

#if defined(__x86_64__)
// Saves the callee-saved registers on the running stack and the stack pointer in *save, and goes on
// where `to` was saved. (ucontext would ask the system for the signal mask at every switch.)
extern "C" void SherdSimtSwitch(void** save, void* to);
__asm__(
    ".text\n.type SherdSimtSwitch,@function\nSherdSimtSwitch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size SherdSimtSwitch,.-SherdSimtSwitch\n");

void Fiber::Prepare() {
  // A frame as a call would have left it: 16-byte aligned before the return address.
  auto* top = reinterpret_cast<void**>(stack_ + kStackBytes - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry_);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  saved_ = top;
}
#else
void Fiber::Prepare() {
  getcontext(&saved_);
  saved_.uc_stack.ss_sp = stack_;
  saved_.uc_stack.ss_size = kStackBytes;
  saved_.uc_link = nullptr;
  makecontext(&saved_, entry_, 0);
}
#endif

Fiber::Fiber() : entry_(nullptr) {
#if defined(SHERD_SIMT_TSAN)
  shadow_ = __tsan_get_current_fiber();
#endif
  pthread_attr_t attributes;
  SHERD_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
  void* bottom = nullptr;
  pthread_attr_getstack(&attributes, &bottom, &bytes_);
  pthread_attr_destroy(&attributes);
  bottom_ = bottom;
}

Fiber::Fiber(void (*entry)()) : entry_(entry), bytes_(kStackBytes) {
  void* const room = mmap(nullptr, kStackBytes + PageBytes(), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SHERD_CHECK(room != MAP_FAILED);
  SHERD_CHECK(mprotect(room, PageBytes(), PROT_NONE) == 0);
  stack_ = static_cast<std::byte*>(room) + PageBytes();
  bottom_ = stack_;
#if defined(SHERD_SIMT_TSAN)
  shadow_ = __tsan_create_fiber(0);
#endif
  Prepare();
}

Fiber::~Fiber() {
  if (stack_ == nullptr) return;
#if defined(SHERD_SIMT_TSAN)
  __tsan_destroy_fiber(shadow_);
#endif
#if defined(SHERD_SIMT_ASAN)
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
  munmap(stack_ - PageBytes(), kStackBytes + PageBytes());
}

void Fiber::Restart() {
#if defined(SHERD_SIMT_ASAN)
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
  fake_stack_ = nullptr;
  Prepare();
}

void Fiber::Forget() {
#if defined(SHERD_SIMT_TSAN)
  __tsan_destroy_fiber(shadow_);
  shadow_ = __tsan_create_fiber(0);
#endif
}

__attribute__((noinline)) void Fiber::Switch(Fiber& from, Fiber& to, [[maybe_unused]] bool ends) {
#if defined(SHERD_SIMT_ASAN)
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack_, to.bottom_, to.bytes_);
#endif
#if defined(SHERD_SIMT_TSAN)
  // A switch orders nothing: what orders threads is said where it happens.
  __tsan_switch_to_fiber(to.shadow_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__)
  SherdSimtSwitch(&from.saved_, to.saved_);
#else
  swapcontext(&from.saved_, &to.saved_);
#endif
#if defined(SHERD_SIMT_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::Entered() {
#if defined(SHERD_SIMT_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace sherd::simt
