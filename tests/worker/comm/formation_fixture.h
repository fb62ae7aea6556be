// A group whose members form in this process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "communicator_kinds.h"
#include "worker/comm/data_link.h"
#include "worker/comm/formation.h"
#include "worker/comm/link_inbox.h"
#include "worker/comm/link_socket.h"

namespace sherd {

// Listeners of a group's members and what the members are told.
class Group {
 public:
  Group(int size, Transport transport) : aborts_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      listeners_.push_back(*DataListener::Bind());
      spec_.addresses.push_back(AddressOf(*listeners_.back(), transport));
    }
    options_.transport = transport;
    spec_.job_id = "job";
    spec_.epoch = 5;
    spec_.group = "data:0";
    spec_.secret = "s3cret";
    options_.arena_bytes = 4096;
  }

  GroupSpec Spec(int rank) const {
    GroupSpec spec = spec_;
    spec.rank = rank;
    return spec;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Form(const GroupSpec& spec) {
    const auto rank = static_cast<size_t>(spec.rank);
    return FormCommunicator(*listeners_[rank], spec, options_, &aborts_[rank]);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Form(int rank) { return Form(Spec(rank)); }

  FormOptions& options() { return options_; }
  FormationAbort& abort(int rank) { return aborts_[static_cast<size_t>(rank)]; }
  const std::string& address(int rank) const { return spec_.addresses[static_cast<size_t>(rank)]; }
  DataListener& listener(int rank) { return *listeners_[static_cast<size_t>(rank)]; }
  LinkInbox& inbox(int rank) { return listener(rank).inbox(); }
  // The process of a member that went away, as far as others can see.
  void CloseListener(int rank) { listeners_[static_cast<size_t>(rank)].reset(); }

  // All ranks form the group and end a barrier.
  void ExpectForms(int size) {
    std::vector<std::unique_ptr<Communicator>> members(static_cast<size_t>(size));
    RunRanks(size, [&](int rank) {
      auto formed = Form(rank);
      ASSERT_TRUE(formed.ok()) << formed.status();
      EXPECT_TRUE((*formed)->Wait((*formed)->Barrier()).ok());
      members[static_cast<size_t>(rank)] = *std::move(formed);
    });
  }

 private:
  GroupSpec spec_;
  FormOptions options_;
  std::vector<std::unique_ptr<DataListener>> listeners_;
  std::vector<FormationAbort> aborts_;
};

inline LinkHello HelloOf(const GroupSpec& spec, int from, int to) {
  return {.job_id = spec.job_id,
          .epoch = spec.epoch,
          .group = spec.group,
          .secret = spec.secret,
          .size = static_cast<int32_t>(spec.addresses.size()),
          .from = from,
          .to = to};
}

inline absl::StatusOr<FileDescriptor> Listen(Transport transport, std::string* address) {
  return transport == Transport::kShm ? ListenForLinks(address)
                                      : ListenForTcpLinks("127.0.0.1", address);
}

// Blocks until the link has a message or has ended.
inline ReceivedLinkMessage AwaitMessage(int link) {
  while (true) {
    ReceivedLinkMessage received = ReceiveLinkMessage(link);
    if (received.input != LinkInput::kNothing) return received;
    std::this_thread::yield();
  }
}

}  // namespace sherd
