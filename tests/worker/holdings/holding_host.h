#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/comm/data_link.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_stream.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/holding_store.h"

namespace sherd::testing {

inline constexpr char kSecret[] = "secret of the epoch";

// What of a worker's process stores shards.
struct HoldingHost {
  std::unique_ptr<DataListener> listener = *DataListener::Bind();
  HoldingStore store;
  std::unique_ptr<HoldingServer> server = *HoldingServer::Start(*listener, store);
  std::string address() const { return listener->network_address(); }
  // It is to store the shards of these ranks of `key`'s epoch.
  void Expect(const HoldingKey& key, const std::vector<int>& owners);
};

// Waits until it holds, without a clock's help; false when that takes too long.
bool Eventually(const std::function<bool()>& holds);

// Accepts one link at `listener`, which has nothing else to do.
FileDescriptor AcceptOne(int listener);

// A link to a process on another host, on which a test says what it likes.
LinkStream ConnectTo(const std::string& address);

}  // namespace sherd::testing
