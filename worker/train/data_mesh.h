#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/comm/communicator.h"

namespace sherd {

// A rank's data-parallel group as its communicators: the ranks that share its shards and, under
// hybrid sharding, those that hold copies of the same shards. Rank d of the group has place d mod K
// among K sharers and d / K among the holders of copies. Thread-safe as Communicator.
class DataMesh {
 public:
  // `replicas` is null when nobody else holds copies.
  DataMesh(std::unique_ptr<Communicator> sharers, std::unique_ptr<Communicator> replicas);

  int rank() const;
  int size() const;
  Communicator& sharers() const { return *sharers_; }
  Communicator* replicas() const { return replicas_.get(); }

  // records (size() · bytes) = every rank's record, in rank order. Blocks, with the errors of
  // Communicator::Wait.
  absl::Status Exchange(const void* record, void* records, int64_t bytes);
  // Blocks until every rank of the group has come here.
  absl::Status Barrier();

  // OK until the first error on an axis: what fails there must end the others too.
  absl::Status status() const;
  // Ends every operation on every axis.
  void Abort(absl::string_view reason);
  // The rank in the group from which an axis's first error came (Communicator::ended_by), asking
  // those that share shards first; -1 when no error came from another.
  int ended_by() const;
  // Over all axes.
  WireCounts counts() const;
  int64_t control_bytes() const;
  int64_t arena_bytes() const;

 private:
  std::unique_ptr<Communicator> sharers_;
  std::unique_ptr<Communicator> replicas_;
};

}  // namespace sherd
