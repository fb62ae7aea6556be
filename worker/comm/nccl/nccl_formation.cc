// How a group over NCCL comes about: links first, then an id on them, then NCCL.
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/comm/nccl/nccl_communicator.h"

namespace sherd {
namespace {

// Between two looks at whether the formation is to end.
constexpr std::chrono::milliseconds kAbortEvery(2);

}  // namespace

absl::Status NcclCommunicator::Join(const std::string& name, const Deadline& deadline,
                                    FormationAbort* abort) {
  Greeting own{.version = epoch_.api().version(),
               .reproducible = options_.reproducible,
               .piece_bytes = options_.piece_bytes,
               .id = {}};
  absl::Status made;
  if (rank_ == 0) {
    absl::StatusOr<NcclUniqueId> id = epoch_.NewUniqueId(deadline);
    made = id.status();
    if (id.ok()) own.id = *id;
  }
  // Told to the others, who wait for it.
  if (!made.ok()) operations_.Fail(made);
  // The operation that nobody sees: its end is the group's beginning.
  const auto greetings = std::make_shared<std::vector<Greeting>>(static_cast<size_t>(size()));
  const Ticket joined =
      operations_.Exchange(&own, greetings->data(), sizeof(Greeting), deadline.left(),
                           [this, greetings, name, deadline](WireCount&) {
                             return JoinGroup(*greetings, name, deadline);
                           });
  while (!operations_.ended(joined)) {
    if (abort != nullptr && abort->aborted()) operations_.Abort(abort->reason());
    std::this_thread::sleep_for(kAbortEvery);
  }
  return operations_.Wait(joined);
}

std::string NcclCommunicator::SettingsOf(const Greeting& greeting) {
  return absl::StrCat("NCCL ", greeting.version, ", ",
                      greeting.reproducible != 0 ? "the tree's reductions" : "NCCL's reductions",
                      ", pieces of ", greeting.piece_bytes, " bytes");
}

absl::Status NcclCommunicator::JoinGroup(const std::vector<Greeting>& greetings,
                                         const std::string& name, const Deadline& deadline) {
  const std::string ours = SettingsOf(greetings[static_cast<size_t>(rank_)]);
  for (int peer = 0; peer < size(); ++peer) {
    const std::string theirs = SettingsOf(greetings[static_cast<size_t>(peer)]);
    if (theirs == ours) continue;
    return absl::FailedPreconditionError(absl::StrCat("rank ", peer, " of ", name, " has ", theirs,
                                                      " where rank ", rank_, " has ", ours));
  }
  const auto join = [&]() -> absl::Status {
    SHERD_RETURN_IF_ERROR(epoch_.device().BindThread());
    SHERD_ASSIGN_OR_RETURN(comm_,
                           epoch_.Join(greetings[0].id, size(), rank_, name, deadline, patience()));
    return memory_.Register(comm_, deadline);
  };
  absl::Status status = join();
  // In this order: behind an abort that has not seen it nothing may be enqueued.
  const NcclEpoch::InFlight in_flight(epoch_);
  if (status.ok()) status = epoch_.status();
  const bool clears = status.ok();
  if (clears) status = ClearArena(deadline);
  if (status.ok()) return status;
  const bool of_nccl =
      absl::IsInternal(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (of_nccl) {
    status = absl::Status(status.code(), absl::StrCat("rank ", rank_, " could not join ", name,
                                                      " over NCCL: ", status.message(),
                                                      " (sherd-worker --nccl none goes through the "
                                                      "hosts)"));
  }
  if (!clears) return status;
  // Memory does not go while the device may still clear it.
  return EndInFlight(status, *cleared_);
}

absl::Status NcclCommunicator::ClearArena(const Deadline& deadline) {
  stream_->Clear(memory_.arena(), memory_.arena_bytes());
  stream_->Record(*cleared_);
  const OpDescriptor clear{.collective = Collective::kExchange};
  return AwaitPassed({clear, deadline, deadline.left()}, *cleared_, "clearing the arena");
}

absl::StatusOr<std::unique_ptr<Communicator>> FormNcclCommunicator(
    NcclEpoch& epoch, DataListener& listener, const GroupSpec& group, const FormOptions& options,
    const NcclOptions& nccl, FormationAbort* abort) {
  const Deadline deadline(options.form_timeout);
  SHERD_RETURN_IF_ERROR(epoch.status());
  SHERD_RETURN_IF_ERROR(CheckGroup(group, Transport::kTcp));
  NcclCommunicator::DeviceSide device;
  SHERD_ASSIGN_OR_RETURN(device.stream, epoch.device().NewStream());
  SHERD_ASSIGN_OR_RETURN(device.cleared, epoch.device().NewEvent());
  const int peers = static_cast<int>(group.addresses.size()) - 1;
  absl::StatusOr<NcclMemory> memory =
      NcclMemory::Create(epoch, options.arena_bytes, peers, nccl.piece_bytes, deadline);
  // Those who wait for this member hear why it does not come.
  Formation formation(listener.inbox(), group, /*own_segment=*/-1, options, abort);
  SHERD_ASSIGN_OR_RETURN(std::vector<Member> members, formation.Run(memory.status()));
  auto communicator =
      std::make_unique<NcclCommunicator>(epoch, group.rank, std::move(members), *std::move(memory),
                                         std::move(device), options.operation_timeout, nccl);
  const std::string name = absl::StrCat(group.group, " of epoch ", group.epoch);
  const absl::Status joined = communicator->Join(name, deadline, abort);
  if (joined.ok()) return communicator;
  const int by = communicator->ended_by();
  return by >= 0 ? Blaming(by, joined) : joined;
}

}  // namespace sherd
