// Not instrumented itself; see fiber.cc.
#include "tests/simt/executor.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/check.h"
#include "tests/simt/thread_sanitizer.h"

namespace sherd::simt {

constinit thread_local Context* context = nullptr;

namespace {

std::string Text(uint3 at) { return absl::StrCat("(", at.x, ", ", at.y, ", ", at.z, ")"); }
std::string Text(Site site) {
  const std::string file = site.file_name();
  return absl::StrCat(file.substr(file.rfind('/') + 1), ":", site.line());
}

uint64_t Volume(dim3 d) { return uint64_t{d.x} * d.y * d.z; }

}  // namespace

Executor::Executor(const ExecutorOptions& options)
    : options_(options),
      random_(options.seed),
      shared_(options.shared_limit),
      exchanges_(kMostExchanges) {
  free_exchanges_.reserve(kMostExchanges);
  for (Exchange& exchange : exchanges_) free_exchanges_.push_back(&exchange);
}

Executor::~Executor() {
  if (context == &context_) context = nullptr;
}

void Executor::Use(Executor* executor) {
  context = executor == nullptr ? nullptr : &executor->context_;
  if (executor != nullptr) context->executor = executor;
}

void Executor::set_order(Order order, uint32_t seed) {
  options_.order = order;
  random_.seed(seed);
}

bool RunGrid(const GridLaunch& launch) {
  SHERD_CHECK(context != nullptr && context->executor != nullptr);
  return context->executor->Run(launch);
}

bool Executor::IsLaunchable(const GridLaunch& launch) const {
  const dim3 grid = launch.grid;
  const uint64_t threads = Volume(launch.block);
  return threads > 0 && threads <= woken_.size() && launch.block.z <= 64 && Volume(grid) > 0 &&
         grid.x < 1u << 31 && grid.y < 1u << 16 && grid.z < 1u << 16 &&
         launch.shared_bytes <= options_.shared_limit;
}

bool Executor::Run(const GridLaunch& launch) {
  if (!report_.empty()) return false;
  launch_ = &launch;
  if (!IsLaunchable(launch)) {
    report_ = absl::StrCat("not launchable: kernel ", launch.kernel);
    return false;
  }
  context_.block_size = launch.block;
  context_.grid_size = launch.grid;
  threads_.resize(Volume(launch.block));
  warps_.resize((threads_.size() + 31) / 32);
  bool good = true;
  for (const uint64_t block : BlockOrder(Volume(launch.grid))) {
    good = RunBlock(block);
    if (!good) break;
  }
  running_ = nullptr;
  TsanAcquire(&end_token_);
  return good;
}

std::vector<uint64_t> Executor::BlockOrder(uint64_t blocks) {
  std::vector<uint64_t> order(blocks);
  for (uint64_t i = 0; i < blocks; ++i) order[i] = i;
  if (options_.order == Order::kReverse) std::reverse(order.begin(), order.end());
  if (options_.order == Order::kRandom) std::shuffle(order.begin(), order.end(), random_);
  return order;
}

void Executor::PrepareThreads() {
  const auto count = static_cast<unsigned>(threads_.size());
  const dim3 size = context_.block_size;
  parity_ ^= 1;
  std::vector<Fiber*>& own = of_parity_[parity_];
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads_[i];
    thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.number = i;
    thread.fiber = nullptr;
    thread.groups = 0;
    thread.copies.clear();
    thread.copies.reserve(kMostCopies);
    if (kThreadSanitizer) {
      if (own.size() == i) {
        own.push_back(fibers_.emplace_back(std::make_unique<Fiber>(&Executor::FiberMain)).get());
      }
      own[i]->Restart();
      thread.fiber = own[i];
    }
    woken_[i] = &thread;
  }
  for (size_t i = 0; i < warps_.size(); ++i) {
    const unsigned lanes = std::min(32u, count - static_cast<unsigned>(i) * 32);
    warps_[i].open.clear();
    warps_[i].open.reserve(32);
    warps_[i].live = lanes == 32 ? ~0u : (1u << lanes) - 1;
  }
  first_ready_ = end_ready_ = at_barrier_ = ended_ = 0;
  vote_ = false;
  MakeReady(count, State::kNew);
}

bool Executor::RunBlock(uint64_t number) {
  const dim3 grid = context_.grid_size;
  context_.block = {static_cast<unsigned>(number % grid.x),
                    static_cast<unsigned>(number / grid.x % grid.y),
                    static_cast<unsigned>(number / grid.x / grid.y)};
  PrepareThreads();
  shared_.Clear();
  context_.dynamic_shared =
      launch_->shared_bytes == 0 ? nullptr : shared_.Find(nullptr, launch_->shared_bytes);
  TsanRelease(&start_token_);
  SwitchTo(TakeReady(), main_, /*ends=*/false);
  if (failure_.what != nullptr) {
    report_ = FailureText();
    failure_ = {};
  } else if (ended_ != threads_.size()) {
    ReportDeadlock();
  }
  if (report_.empty()) return true;
  Abandon();
  return false;
}

void Executor::Abandon() {
  for (Thread& thread : threads_) {
    if (!kThreadSanitizer && thread.fiber != nullptr) idle_.push_back(thread.fiber);
    thread.fiber = nullptr;
  }
  if (kThreadSanitizer) {
    for (const std::vector<Fiber*>& fibers : of_parity_) {
      for (Fiber* fiber : fibers) fiber->Forget();
    }
  }
  free_exchanges_.clear();
  for (Exchange& exchange : exchanges_) free_exchanges_.push_back(&exchange);
}

void Executor::MakeReady(unsigned count, State state) {
  if (options_.order == Order::kReverse) std::reverse(woken_.begin(), woken_.begin() + count);
  for (unsigned i = 0; i < count; ++i) {
    woken_[i]->state = state;
    ready_[end_ready_++ % ready_.size()] = woken_[i];
  }
}

Executor::Thread* Executor::TakeReady() {
  if (first_ready_ == end_ready_) return nullptr;
  Thread*& first = ready_[first_ready_ % ready_.size()];
  if (options_.order == Order::kRandom) {
    const unsigned chosen = first_ready_ + random_() % (end_ready_ - first_ready_);
    std::swap(first, ready_[chosen % ready_.size()]);
  }
  ++first_ready_;
  return first;
}

Fiber* Executor::FreshFiber() {
  if (idle_.empty()) {
    return fibers_.emplace_back(std::make_unique<Fiber>(&Executor::FiberMain)).get();
  }
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  fiber->Restart();
  return fiber;
}

void Executor::SetRunning(Thread* thread) {
  running_ = thread;
  if (thread != nullptr) context_.thread = thread->index;
}

void Executor::SwitchTo(Thread* next, Fiber& from, bool ends) {
  SetRunning(next);
  if (next == nullptr) return Fiber::Switch(from, main_, ends);
  if (next->fiber == nullptr) next->fiber = FreshFiber();
  if (next->fiber != &from) Fiber::Switch(from, *next->fiber, ends);
}

void Executor::Wait(Thread& thread, State state, Site site) {
  thread.state = state;
  thread.site = site;
  SwitchTo(TakeReady(), *thread.fiber, /*ends=*/false);
}

void Executor::FiberMain() {
  Fiber::Entered();
  context->executor->RunThreads();
}

void Executor::RunThreads() {
  for (;;) {
    TsanAcquire(&start_token_);
    launch_->run(launch_->call);
    TsanRelease(&end_token_);
    EndThread(*running_);
    Fiber* const fiber = running_->fiber;
    running_->fiber = nullptr;
    Thread* const next = TakeReady();
    if (next != nullptr && next->fiber == nullptr) {
      // On the same stack: no switch.
      next->fiber = fiber;
      SetRunning(next);
      continue;
    }
    if (!kThreadSanitizer) idle_.push_back(fiber);
    SwitchTo(next, *fiber, /*ends=*/true);
  }
}

// On a device, what others do who wait for a thread that has returned is not defined.
void Executor::EndThread(Thread& thread) {
  const unsigned bit = 1u << thread.number % 32;
  if (at_barrier_ > 0) Fail("barrier divergence: the thread returned, others wait", barrier_);
  for (const Exchange* exchange : WarpOf(thread).open) {
    if ((exchange->mask & bit) == 0) continue;
    Fail("deadlock: the thread returned, lanes of its warp wait for it",
         threads_[thread.number / 32 * 32 + static_cast<unsigned>(__builtin_ctz(exchange->arrived))]
             .site);
  }
  WarpOf(thread).live &= ~bit;
  thread.state = State::kEnded;
  ++ended_;
}

std::string Executor::Here() const {
  if (launch_ == nullptr || running_ == nullptr) return "no kernel";
  return absl::StrCat("kernel ", launch_->kernel, ", block ", Text(context_.block), ", thread ",
                      Text(context_.thread));
}

void Executor::PrintHere() const {
  if (launch_ == nullptr || running_ == nullptr) return;
  const uint3 block = context_.block, thread = context_.thread;
  std::fprintf(stderr, "simt: in kernel %s, block (%u, %u, %u), thread (%u, %u, %u)\n",
               launch_->kernel, block.x, block.y, block.z, thread.x, thread.y, thread.z);
}

void Executor::Fail(const char* what, Site site, unsigned first, unsigned second) {
  failure_ = {what, site, first, second};
  Fiber::Switch(*running_->fiber, main_, /*ends=*/false);
  std::abort();
}

std::string Executor::FailureText() const {
  return absl::StrCat(
      absl::Substitute(failure_.what, absl::Hex(failure_.first), absl::Hex(failure_.second)),
      " at ", Text(failure_.site), " in ", Here());
}

void Executor::ReportDeadlock() {
  constexpr int kNamed = 4;
  report_ = absl::StrCat("deadlock in kernel ", launch_->kernel, ", block ", Text(context_.block));
  int named = 0;
  for (const Thread& thread : threads_) {
    if (thread.state == State::kEnded || named == kNamed) continue;
    // One of each warp says enough.
    if (named > 0 && thread.number % 32 > 1) continue;
    absl::StrAppend(&report_, "; thread ", Text(thread.index), " waits at ", Text(thread.site),
                    thread.state == State::kAtBarrier ? " for the block" : " for its warp");
    ++named;
  }
}

}  // namespace sherd::simt
