#include "worker/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// Looks at the device before the thread sleeps between two: short operations end meanwhile.
constexpr int kSpins = 200;
constexpr absl::Duration kPollEvery = absl::Microseconds(50);
// Between two questions whether NCCL has found an error.
constexpr absl::Duration kCheckEvery = absl::Milliseconds(5);
// NCCL may see that a process is gone a moment before the link says which.
constexpr absl::Duration kReasonPatience = absl::Milliseconds(100);

}  // namespace

NcclCommunicator::NcclCommunicator(NcclEpoch& epoch, int rank, std::vector<Member> members,
                                   NcclMemory memory, DeviceSide device,
                                   absl::Duration operation_timeout, const NcclOptions& options)
    : epoch_(epoch),
      rank_(rank),
      options_(options),
      operation_timeout_(operation_timeout),
      memory_(std::move(memory)),
      stream_(std::move(device.stream)),
      cleared_(std::move(device.cleared)),
      operations_(rank, std::move(members),
                  {.operation_timeout = operation_timeout,
                   .first_sequence = 0,
                   .on_end = [this](const absl::Status& error) { epoch_.Abort(error); }}) {
  SHERD_CHECK(options.piece_bytes > 0 && options.piece_bytes % 4 == 0);
  listener_ =
      epoch_.Listen([this](const absl::Status& reason) { operations_.Abort(reason.message()); });
  // It may have ended before there was anybody to listen.
  if (const absl::Status ended = epoch_.status(); !ended.ok()) operations_.Abort(ended.message());
}

NcclCommunicator::~NcclCommunicator() {
  // First: there are no links to tell others on after Leave.
  epoch_.Forget(listener_);
  operations_.Leave();
  if (operations_.failed()) {
    epoch_.AwaitAborted();
  } else if (comm_ != nullptr) {
    epoch_.Leave(comm_, memory_.registrations());
  }
}

NcclEpoch::Patience NcclCommunicator::patience() const {
  return [this](absl::Duration moment) {
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(moment));
    return operations_.status();
  };
}

void NcclCommunicator::CheckInArena(const void* data, int64_t bytes) const {
  if (bytes == 0) return;
  const int64_t offset = static_cast<const std::byte*>(data) - arena();
  SHERD_CHECK(offset >= 0 && bytes >= 0 && offset <= arena_bytes() - bytes);
}

absl::StatusOr<NcclCommunicator::Moments> NcclCommunicator::TakeMoments() {
  {
    absl::MutexLock lock(&moments_mutex_);
    if (!idle_moments_.empty()) {
      Moments moments = std::move(idle_moments_.back());
      idle_moments_.pop_back();
      return moments;
    }
  }
  Moments moments;
  for (std::unique_ptr<DeviceEvent>* event : {&moments.inputs, &moments.begin, &moments.end}) {
    SHERD_ASSIGN_OR_RETURN(*event, epoch_.device().NewEvent());
  }
  return moments;
}

Ticket NcclCommunicator::EnqueueOp(const OpDescriptor& op, const WireCount& sent, Body body) {
  auto moments = std::make_shared<absl::StatusOr<Moments>>(TakeMoments());
  if (moments->ok()) epoch_.device().compute().Record(*(*moments)->inputs);
  const int64_t turn = epoch_.TakeTurn();
  return operations_.Enqueue(
      op, [this, sent, moments, turn, body = std::move(body)](const OpDescriptor& op) {
        StreamWork work = operations_.NewWork();
        work.finish = [this, op, sent, moments, turn, &body](WireCount& moved) -> absl::Status {
          SHERD_RETURN_IF_ERROR(moments->status());
          // Without a deadline: whoever has the turn has one, and its failure ends the epoch.
          SHERD_RETURN_IF_ERROR(epoch_.AwaitTurn(turn));
          SHERD_RETURN_IF_ERROR(OnDevice(op, **moments, body, moved));
          moved.bytes = sent.bytes;
          moved.messages = sent.messages;
          absl::MutexLock lock(&moments_mutex_);
          idle_moments_.push_back(*std::move(*moments));
          return absl::OkStatus();
        };
        return work;
      });
}

absl::Status NcclCommunicator::OnDevice(const OpDescriptor& op, const Moments& moments,
                                        const Body& body, WireCount& moved) {
  // Nothing is put behind what the caller computes: it could not be taken back by an abort.
  const Run before{op, Deadline(operation_timeout_), operation_timeout_};
  absl::Status status = AwaitPassed(before, *moments.inputs, "what comes before it");
  // In this order: behind an abort that has not seen it nothing may be enqueued.
  const NcclEpoch::InFlight in_flight(epoch_);
  if (status.ok()) status = epoch_.status();
  if (!status.ok()) return Explain(op, status);
  // A member whose device hangs before the operation is the first to be late, and says so.
  const Run run{op, Deadline(operation_timeout_ + kReasonPatience), operation_timeout_};
  stream_->Record(*moments.begin);
  status = body(run);
  if (status.ok()) {
    stream_->Record(*moments.end);
    epoch_.PassTurn();
    status = AwaitPassed(run, *moments.end, "it, though all ranks have come,");
  }
  if (!status.ok()) return EndInFlight(Explain(op, status), *moments.end);
  moved.seconds = epoch_.device().Seconds(*moments.begin, *moments.end);
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Launch(const Run& run, Calls calls) {
  return epoch_.Launch(
      comm_,
      [comm = comm_, stream = stream_->handle(), calls = std::move(calls)](NcclApi& api) {
        return calls(api, comm, stream);
      },
      run.deadline, patience());
}

absl::Status NcclCommunicator::AwaitPassed(const Run& run, const DeviceEvent& event,
                                           absl::string_view what) {
  const NcclEpoch::Patience wait = patience();
  Deadline next_check(kCheckEvery);
  for (int poll = 0;; ++poll) {
    const bool passed = epoch_.device().Passed(event);
    for (const DeviceStream* stream : {stream_.get(), &epoch_.device().compute()}) {
      const std::string failure = stream->failure();
      if (!failure.empty()) return absl::InternalError(failure);
    }
    if (passed) return absl::OkStatus();
    if (poll < kSpins) continue;
    SHERD_RETURN_IF_ERROR(wait(kPollEvery));
    if (next_check.passed()) {
      SHERD_RETURN_IF_ERROR(epoch_.Check(comm_));
      next_check = Deadline(kCheckEvery);
    }
    if (run.deadline.passed()) {
      return absl::DeadlineExceededError(absl::StrCat(Describe(run.op), ": rank ", rank_,
                                                      "'s device did not finish ", what, " within ",
                                                      absl::FormatDuration(run.patience)));
    }
  }
}

absl::Status NcclCommunicator::Explain(const OpDescriptor& op, const absl::Status& error) {
  const bool of_device = absl::IsInternal(error) || absl::IsUnavailable(error);
  if (!of_device) return error;
  SHERD_RETURN_IF_ERROR(operations_.AwaitFailure(kReasonPatience));
  return absl::Status(error.code(),
                      absl::StrCat(Describe(op), " on rank ", rank_, ": ", error.message()));
}

absl::Status NcclCommunicator::EndInFlight(const absl::Status& error, DeviceEvent& end) {
  operations_.Fail(error);
  epoch_.AwaitAborted();
  // NCCL's kernels end with the abort; buffers are the caller's again when what is behind them on
  // the stream has ended too. Should that hang, the epoch ends the process.
  stream_->Record(end);
  while (stream_->failure().empty() && !epoch_.device().Passed(end)) {
    std::this_thread::sleep_for(absl::ToChronoMicroseconds(kPollEvery));
  }
  return operations_.status();
}

}  // namespace sherd
