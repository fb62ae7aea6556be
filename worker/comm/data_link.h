#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace sherd {

class LinkInbox;

// Accepts the data links of a worker's life: bound when made, then advertised in Hello. Abstract
// Unix socket, so nothing is left behind in any file system. Thread-safe.
class DataListener {
 public:
  static absl::StatusOr<std::unique_ptr<DataListener>> Bind();
  virtual ~DataListener() = default;
  // "unix-abstract:NAME".
  virtual std::string address() const = 0;
  // Where links wait for the formation that they are for. Lives as long as the listener.
  virtual LinkInbox& inbox() = 0;
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
  // Data address of every member, by group rank.
  std::vector<std::string> addresses;
};

struct ShmOptions {
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
  // Becomes readable at Abort, for poll().
  int descriptor() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Forms a communicator over shared memory: exchanges segments (memfd, so nothing outlives the
// processes) with every member over its data link, which also tells a peer's death at once. Blocks;
// any member may come first. A group of one has no links. The caller accounts for the arena's
// contents in its own memory meter; `abort` may be null.
// Errors: kAborted (abort->Abort was called, or a member left), kDeadlineExceeded naming the ranks
// that did not come, kUnavailable (a member's process went away), kPermissionDenied (refused for
// secret or epoch), kFailedPrecondition (members disagree on the group), kResourceExhausted (no
// memory for the segment), kInvalidArgument (a group that cannot be). What ends one member's
// formation ends the others' with the same error; a stranger's link changes nothing.
absl::StatusOr<std::unique_ptr<Communicator>> FormShmCommunicator(DataListener& listener,
                                                                  const GroupSpec& group,
                                                                  const ShmOptions& options,
                                                                  FormationAbort* abort);

}  // namespace sherd
