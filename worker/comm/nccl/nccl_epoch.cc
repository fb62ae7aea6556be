#include "worker/comm/nccl/nccl_epoch.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// Between two looks at whether NCCL has done what it was told.
constexpr absl::Duration kPollEvery = absl::Microseconds(100);
// For an answer that needs nobody else.
constexpr absl::Duration kAnswerPatience = absl::Milliseconds(50);
constexpr absl::string_view kAsyncError = "ncclCommGetAsyncError";

}  // namespace

NcclEpoch::NcclEpoch(NcclApi& api, StreamDevice& device, Options options)
    : api_(api),
      device_(device),
      options_(std::move(options)),
      thread_([&device] { return device.BindThread(); }),
      helper_([this] { AbortWhenAsked(); }),
      watch_([this] { ExitWhenStuck(); }) {}

NcclEpoch::~NcclEpoch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  helper_.join();
  watch_.join();
  absl::MutexLock lock(&mutex_);
  SHERD_CHECK(comms_.empty() && in_flight_ == 0);
}

absl::Status NcclEpoch::Run(absl::string_view name, NcclThread::Call call,
                            const Deadline& deadline) {
  const absl::Status status = thread_.Run(std::move(call), deadline);
  if (absl::IsAborted(status)) return this->status();
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat(name, " has not returned"));
}

absl::Status NcclEpoch::StatusOf(NcclResult result, absl::string_view call, NcclComm comm) {
  if (result == NcclResult::kSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(call, ": ", api_.Text(result, comm));
  return result == NcclResult::kRemoteError ? absl::UnavailableError(text)
                                            : absl::InternalError(text);
}

absl::StatusOr<NcclUniqueId> NcclEpoch::NewUniqueId(const Deadline& deadline) {
  const auto id = std::make_shared<NcclUniqueId>();
  static constexpr absl::string_view kName = "ncclGetUniqueId";
  SHERD_RETURN_IF_ERROR(Run(
      kName, [this, id] { return StatusOf(api_.GetUniqueId(id.get()), kName, nullptr); },
      deadline));
  return *id;
}

absl::StatusOr<NcclComm> NcclEpoch::Join(const NcclUniqueId& id, int size, int rank,
                                         const std::string& name, const Deadline& deadline,
                                         const Patience& patience) {
  const auto comm = std::make_shared<NcclComm>(nullptr);
  static constexpr absl::string_view kName = "ncclCommInitRankConfig";
  SHERD_RETURN_IF_ERROR(Run(
      kName,
      [this, id, size, rank, name, comm] {
        const NcclResult result = api_.CommInitRank(comm.get(), size, id, rank, name.c_str());
        if (*comm != nullptr) Add(*comm);
        return StatusOf(result == NcclResult::kInProgress ? NcclResult::kSuccess : result, kName,
                        *comm);
      },
      deadline));
  SHERD_RETURN_IF_ERROR(AwaitReady(*comm, kName, deadline, patience));
  return *comm;
}

absl::Status NcclEpoch::Launch(NcclComm comm, Calls calls, const Deadline& deadline,
                               const Patience& patience) {
  const auto in_progress = std::make_shared<bool>(false);
  SHERD_RETURN_IF_ERROR(Run(
      "ncclGroupEnd",
      [this, comm, calls = std::move(calls), in_progress] {
        SHERD_RETURN_IF_ERROR(StatusOf(api_.GroupStart(), "ncclGroupStart", comm));
        SHERD_RETURN_IF_ERROR(CheckNotTaken());
        const NcclResult called = calls(api_);
        SHERD_RETURN_IF_ERROR(CheckNotTaken());
        // In any case: a group that has begun takes in all that comes later.
        const NcclResult ended = api_.GroupEnd();
        const auto failed = [](NcclResult result) {
          return result != NcclResult::kSuccess && result != NcclResult::kInProgress;
        };
        if (failed(called)) return StatusOf(called, "a call of NCCL", comm);
        if (failed(ended)) return StatusOf(ended, "ncclGroupEnd", comm);
        *in_progress = ended == NcclResult::kInProgress || called == NcclResult::kInProgress;
        return absl::OkStatus();
      },
      deadline));
  return *in_progress ? AwaitReady(comm, "ncclGroupEnd", deadline, patience) : absl::OkStatus();
}

absl::Status NcclEpoch::AwaitReady(NcclComm comm, absl::string_view call, const Deadline& deadline,
                                   const Patience& patience) {
  while (true) {
    const auto state = std::make_shared<NcclResult>(NcclResult::kInProgress);
    SHERD_RETURN_IF_ERROR(Run(
        kAsyncError,
        [this, comm, state] {
          return StatusOf(api_.CommGetAsyncError(comm, state.get()), kAsyncError, comm);
        },
        deadline));
    if (*state == NcclResult::kSuccess) return absl::OkStatus();
    if (*state != NcclResult::kInProgress) {
      const std::string name(call);
      return Run(
          name, [this, comm, name, state] { return StatusOf(*state, name, comm); }, deadline);
    }
    if (deadline.passed()) {
      return absl::DeadlineExceededError(absl::StrCat(call, ": NCCL is still at it"));
    }
    SHERD_RETURN_IF_ERROR(patience(std::min(kPollEvery, deadline.left())));
  }
}

int64_t NcclEpoch::TakeTurn() {
  absl::MutexLock lock(&mutex_);
  return next_turn_++;
}

absl::Status NcclEpoch::AwaitTurn(int64_t turn) const {
  const auto come = [this, turn] {
    mutex_.AssertReaderHeld();
    return turn_ == turn || !end_.ok();
  };
  absl::MutexLock lock(&mutex_, absl::Condition(&come));
  return end_;
}

void NcclEpoch::PassTurn() {
  absl::MutexLock lock(&mutex_);
  ++turn_;
}

absl::Status NcclEpoch::Check(NcclComm comm) {
  const absl::Status status = Run(
      kAsyncError,
      [this, comm] {
        NcclResult state = NcclResult::kSuccess;
        SHERD_RETURN_IF_ERROR(StatusOf(api_.CommGetAsyncError(comm, &state), kAsyncError, comm));
        if (state == NcclResult::kInProgress) return absl::OkStatus();
        return StatusOf(state, kAsyncError, comm);
      },
      Deadline(kAnswerPatience));
  // Another communicator's call is in the way.
  return absl::IsDeadlineExceeded(status) ? absl::OkStatus() : status;
}

void NcclEpoch::Leave(NcclComm comm, const std::vector<void*>& registrations) {
  const Deadline deadline(options_.abort_deadline);
  const auto leave = [&]() -> absl::Status {
    SHERD_RETURN_IF_ERROR(Run(
        "ncclCommFinalize",
        [this, comm, registrations] {
          for (void* registration : registrations) {
            SHERD_RETURN_IF_ERROR(
                StatusOf(api_.CommDeregister(comm, registration), "ncclCommDeregister", comm));
            SHERD_RETURN_IF_ERROR(CheckNotTaken());
          }
          const NcclResult result = api_.CommFinalize(comm);
          return StatusOf(result == NcclResult::kInProgress ? NcclResult::kSuccess : result,
                          "ncclCommFinalize", comm);
        },
        deadline));
    const Patience patience = [this](absl::Duration moment) {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(moment));
      return status();
    };
    SHERD_RETURN_IF_ERROR(AwaitReady(comm, "ncclCommFinalize", deadline, patience));
    return Run(
        "ncclCommDestroy",
        [this, comm] {
          // First: it is gone afterwards, whatever the answer, and must not be aborted too.
          Remove(comm);
          const NcclResult result = api_.CommDestroy(comm);
          return StatusOf(result == NcclResult::kInProgress ? NcclResult::kSuccess : result,
                          "ncclCommDestroy", nullptr);
        },
        deadline);
  };
  const absl::Status left = leave();
  if (left.ok()) return;
  Abort(left);
  AwaitAborted();
}

absl::StatusOr<std::byte*> NcclEpoch::Allocate(int64_t bytes, const Deadline& deadline) {
  static constexpr absl::string_view kName = "ncclMemAlloc";
  // Given back by whom the call, or the wait for it, ends last.
  static std::byte unwanted;
  const auto place = std::make_shared<std::atomic<std::byte*>>(nullptr);
  const absl::Status status = Run(
      kName,
      [this, bytes, place] {
        void* memory = nullptr;
        SHERD_RETURN_IF_ERROR(
            StatusOf(api_.MemAlloc(&memory, static_cast<size_t>(bytes)), kName, nullptr));
        if (place->exchange(static_cast<std::byte*>(memory)) != &unwanted) return absl::OkStatus();
        return StatusOf(api_.MemFree(memory), "ncclMemFree", nullptr);
      },
      deadline);
  if (status.ok()) return place->load();
  if (std::byte* const late = place->exchange(&unwanted); late != nullptr) Free(late);
  if (absl::IsDeadlineExceeded(status)) Abort(status);
  if (!absl::IsInternal(status)) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat("no ", bytes, " bytes of device memory for NCCL: ", status.message()));
}

void NcclEpoch::Free(std::byte* memory) {
  (void)thread_.RunToEnd(
      [this, memory] { return StatusOf(api_.MemFree(memory), "ncclMemFree", nullptr); });
}

absl::StatusOr<void*> NcclEpoch::Register(NcclComm comm, void* memory, int64_t bytes,
                                          const Deadline& deadline) {
  const auto handle = std::make_shared<void*>(nullptr);
  static constexpr absl::string_view kName = "ncclCommRegister";
  SHERD_RETURN_IF_ERROR(Run(
      kName,
      [this, comm, memory, bytes, handle] {
        return StatusOf(api_.CommRegister(comm, memory, static_cast<size_t>(bytes), handle.get()),
                        kName, comm);
      },
      deadline));
  return *handle;
}

absl::Status NcclEpoch::CheckNotTaken() const {
  absl::MutexLock lock(&mutex_);
  return taken_ ? end_ : absl::OkStatus();
}

void NcclEpoch::Add(NcclComm comm) {
  {
    absl::MutexLock lock(&mutex_);
    if (!taken_) {
      comms_.push_back(comm);
      return;
    }
  }
  (void)api_.CommAbort(comm);
}

void NcclEpoch::Remove(NcclComm comm) {
  absl::MutexLock lock(&mutex_);
  comms_.erase(std::remove(comms_.begin(), comms_.end(), comm), comms_.end());
}

}  // namespace sherd
