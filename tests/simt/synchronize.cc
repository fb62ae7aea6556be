// What threads of a block wait for: barriers, operations of their warp, copies. Not instrumented
// itself; see fiber.cc.
#include <bit>
#include <cstring>

#include "tests/simt/executor.h"
#include "tests/simt/thread_sanitizer.h"

namespace sherd::simt {

void Executor::ReleaseBarrier() {
  unsigned count = 0;
  for (Thread& thread : threads_) {
    if (thread.state == State::kAtBarrier) woken_[count++] = &thread;
  }
  outcome_ = vote_;
  vote_ = false;
  at_barrier_ = 0;
  ++generation_;
  MakeReady(count, State::kReady);
}

void Executor::ArriveAtBarrier(Thread& thread, Site site) {
  if (ended_ > 0) Fail("barrier divergence: other threads have returned", site);
  if (at_barrier_ > 0 &&
      (barrier_.line() != site.line() || barrier_.file_name() != site.file_name())) {
    Fail("barrier divergence: other threads wait elsewhere", site);
  }
  barrier_ = site;
  void* const token = &barrier_tokens_[parity_][generation_ % 2];
  TsanRelease(token);
  thread.state = State::kAtBarrier;
  if (++at_barrier_ == threads_.size()) ReleaseBarrier();
  // Of the last to arrive the state is kReady by now.
  Wait(thread, thread.state, site);
  TsanAcquire(token);
}

void SyncThreads(Site site) {
  Executor& executor = *context->executor;
  executor.ArriveAtBarrier(*executor.running_, site);
}

bool SyncThreadsOr(bool value, Site site) {
  Executor& executor = *context->executor;
  executor.vote_ |= value;
  executor.ArriveAtBarrier(*executor.running_, site);
  return executor.outcome_;
}

Exchange& Executor::FindExchange(Thread& thread, unsigned mask, int operation, Site site) {
  Warp& warp = WarpOf(thread);
  const unsigned bit = 1u << thread.number % 32;
  if ((mask & bit) == 0) Fail("warp operation by a lane outside of its mask $0", site, mask);
  if ((mask & ~warp.live) != 0) {
    Fail("warp operation with lanes in its mask $0 that have returned or do not exist", site, mask);
  }
  for (Exchange* exchange : warp.open) {
    if (exchange->mask == mask && exchange->operation == operation) return *exchange;
    // Those that wait there wait for this lane, which would wait for one of them.
    if ((exchange->mask & bit) == 0 || (exchange->arrived & mask) == 0) continue;
    if (exchange->mask != mask) {
      Fail("differing masks in one warp: $0 here, lanes wait with $1", site, mask, exchange->mask);
    }
    Fail("differing operations in one warp", site);
  }
  if (free_exchanges_.empty()) Fail("more warp operations at once than the executor holds", site);
  Exchange& fresh = *free_exchanges_.back();
  free_exchanges_.pop_back();
  fresh.mask = mask;
  fresh.arrived = 0;
  fresh.operation = operation;
  warp.open.push_back(&fresh);
  return fresh;
}

void Executor::CloseExchange(Exchange& exchange, Thread& last) {
  std::vector<Exchange*>& open = WarpOf(last).open;
  for (Exchange*& each : open) {
    if (each != &exchange) continue;
    each = open.back();
    open.pop_back();
    break;
  }
  exchange.reading = static_cast<unsigned>(std::popcount(exchange.arrived));
  const unsigned first = last.number / 32 * 32;
  unsigned count = 0;
  for (unsigned lanes = exchange.arrived; lanes != 0; lanes &= lanes - 1) {
    Thread& thread = threads_[first + static_cast<unsigned>(std::countr_zero(lanes))];
    // In forward order the last lane goes on; in others it takes its turn.
    if (&thread != &last || options_.order != Order::kForward) woken_[count++] = &thread;
  }
  MakeReady(count, State::kReady);
}

const Exchange& JoinWarp(unsigned mask, int operation, const uint64_t* words, int count,
                         bool orders_memory, Site site) {
  Executor& executor = *context->executor;
  Executor::Thread& thread = *executor.running_;
  Exchange& exchange = executor.FindExchange(thread, mask, operation, site);
  const unsigned lane = thread.number % 32;
  for (int i = 0; i < count; ++i) exchange.values[lane][i] = words[i];
  exchange.arrived |= 1u << lane;
  if (orders_memory) TsanRelease(&exchange);
  if (exchange.arrived != mask) {
    executor.Wait(thread, Executor::State::kInWarp, site);
  } else {
    executor.CloseExchange(exchange, thread);
    if (executor.options_.order != Order::kForward) {
      executor.Wait(thread, Executor::State::kReady, site);
    }
  }
  if (orders_memory) TsanAcquire(&exchange);
  return exchange;
}

void FinishReading(const Exchange& exchange) {
  auto& mine = const_cast<Exchange&>(exchange);
  if (--mine.reading == 0) context->executor->free_exchanges_.push_back(&mine);
}

void* SharedVariable(const void* key, size_t bytes, Site site) {
  Executor& executor = *context->executor;
  void* const data = executor.shared_.Find(key, bytes);
  if (data == nullptr) executor.Fail("more shared memory than a block has", site);
  return data;
}

void CopyLater(void* to, const void* from, size_t bytes, Site site) {
  Executor& executor = *context->executor;
  Executor::Thread& thread = *executor.running_;
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % bytes != 0) {
    executor.Fail("asynchronous copy of unaligned memory", site);
  }
  if (thread.copies.size() == Executor::kMostCopies) {
    executor.Fail("more asynchronous copies than the executor holds", site);
  }
  std::memset(to, 0xff, bytes);
  thread.copies.push_back({to, from, bytes, thread.groups});
}

void CommitCopies() { ++context->executor->running_->groups; }

void WaitForCopies(int groups) {
  Executor& executor = *context->executor;
  executor.FinishCopies(*executor.running_, groups);
}

void Executor::FinishCopies(Thread& thread, int groups) {
  size_t kept = 0;
  for (const Copy& copy : thread.copies) {
    if (copy.group < thread.groups - groups) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      thread.copies[kept++] = copy;
    }
  }
  thread.copies.resize(kept);
}

}  // namespace sherd::simt
