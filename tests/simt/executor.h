#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/simt/context.h"
#include "tests/simt/fiber.h"
#include "tests/simt/shared_memory.h"

namespace sherd::simt {

// In which order threads of a block, and blocks of a grid, take turns.
enum class Order : uint8_t { kForward, kReverse, kRandom };

struct ExecutorOptions {
  Order order = Order::kForward;
  // Of Order::kRandom.
  uint32_t seed = 1;
  // Of one block; the default is what compute capability 9.0 has.
  size_t shared_limit = 227 << 10;
};

// Runs CUDA kernels on the calling thread: every thread of a block is a fiber, and one block runs
// after the other. A thread runs until it has to wait, so that of two threads that no barrier
// orders one sees nothing or everything of what the other does, as the order has it; what depends
// on it differs from order to order, and the thread sanitizer sees it in any.
//
// A launch that breaks a rule ends at once and is reported: with what, where in the source, kernel,
// block and thread. A kernel's threads are left where they are then; nothing of theirs is
// destroyed.
//
// One executor at a time runs on a thread of the system.
class Executor {
 public:
  explicit Executor(const ExecutorOptions& options = {});
  ~Executor();

  // The executor of launches on this thread, until the next call; null: none.
  static void Use(Executor* executor);

  // False when a rule was broken, now or by an earlier launch: as on a device, nothing runs after.
  bool Run(const GridLaunch& launch);
  // What went wrong; empty when nothing did.
  const std::string& report() const { return report_; }
  // Forgets what went wrong.
  void Clear() { report_.clear(); }

  void set_order(Order order, uint32_t seed = 1);

  // "kernel K, block (x, y, z), thread (x, y, z)" of the thread that runs; for the sanitizers'
  // reports.
  std::string Here() const;
  // The same to the standard error, without taking memory.
  void PrintHere() const;

 private:
  friend void SyncThreads(Site site);
  friend bool SyncThreadsOr(bool value, Site site);
  friend const Exchange& JoinWarp(unsigned mask, int operation, const uint64_t* words, int count,
                                  bool orders_memory, Site site);
  friend void FinishReading(const Exchange& exchange);
  friend void* SharedVariable(const void* key, size_t bytes, Site site);
  friend void CopyLater(void* to, const void* from, size_t bytes, Site site);
  friend void CommitCopies();
  friend void WaitForCopies(int groups);

  static constexpr size_t kMostCopies = 64;
  static constexpr size_t kMostExchanges = 1024;
  enum class State : uint8_t { kNew, kReady, kAtBarrier, kInWarp, kEnded };
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    int group;
  };
  struct Thread {
    uint3 index{};
    unsigned number = 0;
    State state = State::kNew;
    Fiber* fiber = nullptr;
    Site site;       // where it waits
    int groups = 0;  // of copies, committed
    std::vector<Copy> copies;
  };
  struct Warp {
    std::vector<Exchange*> open;
    unsigned live = 0;
  };

  static void FiberMain();
  void RunThreads();
  void EndThread(Thread& thread);

  // False when a rule was broken.
  bool RunBlock(uint64_t number);
  void PrepareThreads();
  std::vector<uint64_t> BlockOrder(uint64_t blocks);
  // The first `count` of woken_.
  void MakeReady(unsigned count, State state);
  // The next thread to run, or none.
  Thread* TakeReady();
  Fiber* FreshFiber();
  void SetRunning(Thread* thread);
  // Leaves the running thread, which waits, for the next, or for the launch when there is none.
  void Wait(Thread& thread, State state, Site site);
  void SwitchTo(Thread* next, Fiber& from, bool ends);

  void ArriveAtBarrier(Thread& thread, Site site);
  void ReleaseBarrier();
  Exchange& FindExchange(Thread& thread, unsigned mask, int operation, Site site);
  void CloseExchange(Exchange& exchange, Thread& last);
  void FinishCopies(Thread& thread, int groups);

  // Ends the launch; does not return to the kernel. In `what`, $0 and $1 stand for the numbers, in
  // hexadecimal. The report is written outside of the kernel: the fiber, whose stack is given up,
  // holds no memory.
  [[noreturn]] void Fail(const char* what, Site site, unsigned first = 0, unsigned second = 0);
  std::string FailureText() const;
  void ReportDeadlock();
  bool IsLaunchable(const GridLaunch& launch) const;
  // What the running launch left half done.
  void Abandon();

  Warp& WarpOf(const Thread& thread) { return warps_[thread.number / 32]; }

  ExecutorOptions options_;
  std::mt19937 random_;
  std::string report_;
  struct Failure {
    const char* what = nullptr;
    Site site;
    unsigned first = 0, second = 0;
  } failure_;
  Context context_;
  const GridLaunch* launch_ = nullptr;
  Fiber main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  // Of the running block.
  SharedMemory shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  // A ring; a thread is in it at most once.
  std::array<Thread*, 2048> ready_{};
  unsigned first_ready_ = 0, end_ready_ = 0;
  std::array<Thread*, 1024> woken_{};
  Thread* running_ = nullptr;
  unsigned at_barrier_ = 0, ended_ = 0;
  Site barrier_;  // where threads wait, if any do
  bool vote_ = false, outcome_ = false;

  // Allocated by no fiber, which for the thread sanitizer would be a write.
  std::vector<Exchange> exchanges_;
  std::vector<Exchange*> free_exchanges_;

  // What orders threads, for the thread sanitizer. Blocks that follow each other share no fibers,
  // and barriers that follow each other no token, so that nothing seems ordered that is not.
  unsigned parity_ = 0, generation_ = 0;
  std::array<std::vector<Fiber*>, 2> of_parity_;
  char start_token_ = 0, end_token_ = 0, barrier_tokens_[2][2] = {};
};

}  // namespace sherd::simt
