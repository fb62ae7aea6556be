#include "worker/comm/data_link.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/formation.h"
#include "worker/comm/shm_communicator.h"
#include "worker/comm/tcp_communicator.h"

namespace sherd {
namespace {

uint64_t NamespaceInode(const char* path) {
  struct stat entry = {};
  return ::stat(path, &entry) == 0 ? entry.st_ino : 0;
}

}  // namespace

std::string SharedMemoryDomain() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return absl::StrCat(boot_id, ":", NamespaceInode("/proc/self/ns/net"), ":",
                      NamespaceInode("/proc/self/ns/user"), ":", ::geteuid());
}

struct FormationAbort::Impl {
  FileDescriptor event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> aborted{false};
  mutable absl::Mutex mutex;
  std::string reason ABSL_GUARDED_BY(mutex);
};

FormationAbort::FormationAbort() : impl_(std::make_unique<Impl>()) {}

FormationAbort::~FormationAbort() = default;

void FormationAbort::Abort(absl::string_view reason) {
  absl::MutexLock lock(&impl_->mutex);
  if (impl_->aborted.load()) return;
  impl_->reason = std::string(reason);
  impl_->aborted.store(true);
  const uint64_t one = 1;
  (void)!::write(impl_->event.get(), &one, sizeof(one));
}

bool FormationAbort::aborted() const { return impl_->aborted.load(); }

std::string FormationAbort::reason() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->reason;
}

int FormationAbort::descriptor() const { return impl_->event.get(); }

namespace {

// A communicator may have ended already, by what others did, and tells that itself; one that this
// member could not make whole was not formed.
absl::StatusOr<std::unique_ptr<Communicator>> Formed(std::unique_ptr<Communicator> communicator) {
  const absl::Status status = communicator->status();
  if (!status.ok() && communicator->ended_by() < 0) return status;
  return communicator;
}

absl::StatusOr<std::unique_ptr<Communicator>> FormShm(DataListener& listener,
                                                      const GroupSpec& group,
                                                      const FormOptions& options,
                                                      FormationAbort* abort) {
  FileDescriptor own_descriptor;
  absl::StatusOr<SharedSegment> own = SharedSegment::Create(options.arena_bytes, &own_descriptor);
  // Those who wait for this member hear why it does not come.
  Formation formation(listener.inbox(), group,
                      own.ok() ? own_descriptor.get() : Formation::kNoSegment, options, abort);
  SHERD_ASSIGN_OR_RETURN(std::vector<Member> members, formation.Run(own.status()));
  members[static_cast<size_t>(group.rank)].segment = *std::move(own);
  return Formed(
      std::make_unique<ShmCommunicator>(group.rank, std::move(members), options.operation_timeout));
}

absl::StatusOr<std::unique_ptr<Communicator>> FormTcp(DataListener& listener,
                                                      const GroupSpec& group,
                                                      const FormOptions& options,
                                                      FormationAbort* abort) {
  const int peers = static_cast<int>(group.addresses.size()) - 1;
  absl::StatusOr<TcpMemory> memory = TcpMemory::Create(options.arena_bytes, peers);
  Formation formation(listener.inbox(), group, /*own_segment=*/-1, options, abort);
  SHERD_ASSIGN_OR_RETURN(std::vector<Member> members, formation.Run(memory.status()));
  return Formed(std::make_unique<TcpCommunicator>(group.rank, std::move(members),
                                                  *std::move(memory), options.operation_timeout));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> FormCommunicator(DataListener& listener,
                                                               const GroupSpec& group,
                                                               const FormOptions& options,
                                                               FormationAbort* abort) {
  SHERD_RETURN_IF_ERROR(CheckGroup(group, options.transport));
  const auto form = options.transport == Transport::kShm ? FormShm : FormTcp;
  return form(listener, group, options, abort);
}

}  // namespace sherd
