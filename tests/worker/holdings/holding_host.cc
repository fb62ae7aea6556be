#include "tests/worker/holdings/holding_host.h"

#include <poll.h>

#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "common/check.h"
#include "sherd/v1/worker.pb.h"
#include "worker/comm/deadline.h"
#include "worker/comm/link_socket.h"

namespace sherd::testing {
namespace {

constexpr absl::Duration kLongest = absl::Seconds(20);

}  // namespace

void HoldingHost::Expect(const HoldingKey& key, const std::vector<int>& owners) {
  v1::Hold hold;
  hold.set_job_id(key.job_id);
  hold.set_epoch(key.epoch);
  hold.set_world(key.world);
  hold.set_secret(kSecret);
  for (const int owner : owners) hold.add_owners(owner);
  store.Expect(hold);
}

bool Eventually(const std::function<bool()>& holds) {
  const Deadline deadline(kLongest);
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

FileDescriptor AcceptOne(int listener) {
  pollfd waiting = {listener, POLLIN, 0};
  SHERD_CHECK(::poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(kLongest))) == 1);
  absl::StatusOr<FileDescriptor> link = AcceptLink(listener);
  SHERD_CHECK(link.ok() && link->valid());
  return *std::move(link);
}

LinkStream ConnectTo(const std::string& address) {
  absl::StatusOr<LinkStream> stream = LinkStream::Connect(address, {}, Deadline(kLongest));
  SHERD_CHECK(stream.ok());
  return *std::move(stream);
}

}  // namespace sherd::testing
