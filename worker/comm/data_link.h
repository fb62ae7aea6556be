#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_message.h"

namespace sherd {

class LinkInbox;

// Accepts the data links of a worker's life: bound when made, then advertised in Hello. Workers of
// its shared-memory domain come to an abstract Unix socket, so nothing is left behind in any file
// system, others over TCP. Thread-safe.
class DataListener {
 public:
  // `host`: the address of this machine, by name or number, that workers elsewhere come to. Errors:
  // kInvalidArgument (a host without an address), kUnavailable (not this machine's),
  // kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<DataListener>> Bind(const std::string& host = "127.0.0.1");
  virtual ~DataListener() = default;
  // "unix-abstract:NAME".
  virtual std::string address() const = 0;
  // "tcp:HOST:PORT".
  virtual std::string network_address() const = 0;
  // Where links wait for the formation that they are for. Lives as long as the listener.
  virtual LinkInbox& inbox() = 0;

  // Who hears of links about stored shards, with what came along; on the listener's thread, so it
  // must not block. Nobody at first, and with nullptr: such links are closed.
  using HoldingHandler =
      std::function<void(FileDescriptor link, const LinkHolding& said, FileDescriptor attached)>;
  virtual void ServeHoldings(HoldingHandler handler) = 0;
};

// Workers with equal tokens can reach each other's sockets and map each other's memory: kernel boot
// id, network and user namespace, user.
std::string SharedMemoryDomain();

// What the members of one group agree on, taken from the Assignment.
struct GroupSpec {
  std::string job_id;
  int64_t epoch = 0;
  std::string group;   // "data:0": kind and index, unique in the epoch
  std::string secret;  // a link that does not present it is refused
  int rank = 0;        // in the group
  // Where every member's listener is, by group rank: address(), or network_address() in a group
  // over TCP.
  std::vector<std::string> addresses;
};

// What a group's data move through: memory that all members map, or TCP streams.
enum class Transport { kShm, kTcp };

struct FormOptions {
  Transport transport = Transport::kShm;
  int64_t arena_bytes = 0;
  // For forming the group. kDeadlineExceeded names the ranks that did not come.
  absl::Duration form_timeout = absl::Seconds(20);
  // Longest wait for a peer inside an operation; its end is the end of the communicator.
  absl::Duration operation_timeout = absl::Seconds(60);
};

// Ends a formation from another thread. Thread-safe; one use.
class FormationAbort {
 public:
  FormationAbort();
  ~FormationAbort();
  FormationAbort(const FormationAbort&) = delete;
  void Abort(absl::string_view reason);
  bool aborted() const;
  // The reason given; "" before Abort.
  std::string reason() const;
  // Becomes readable at Abort, for poll(); -1 when the system had none to give: nothing forms then.
  int descriptor() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Forms a communicator: opens a data link to every member, which also tells a peer's death at once,
// and exchanges segments (memfd, so nothing outlives the processes) or opens a stream for data.
// Blocks; any member may come first. A group of one has no links. The caller accounts for the
// arena's contents in its own memory meter; `abort` may be null.
// Errors: kAborted (abort->Abort, or a member left), kDeadlineExceeded naming who did not come,
// kUnavailable (a member's process went away), kPermissionDenied (refused for secret or epoch),
// kFailedPrecondition (members disagree), kResourceExhausted (no memory or descriptors; others may
// learn of it by their deadline alone), kInvalidArgument (a group that cannot be). What else ends
// one member's formation ends the others' with the same error; a stranger's link changes nothing.
absl::StatusOr<std::unique_ptr<Communicator>> FormCommunicator(DataListener& listener,
                                                               const GroupSpec& group,
                                                               const FormOptions& options,
                                                               FormationAbort* abort);

}  // namespace sherd
