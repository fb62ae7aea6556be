#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/registry.h"

namespace sherd {

// Serves a registry at http://ADDRESS/metrics until destroyed. Thread-safe.
class MetricsServer {
 public:
  // `address` is "HOST:PORT"; port 0 takes a free one. kUnavailable, naming the address, when it is
  // taken. Each scrape also looks at the file systems that `disks` are on, name → directory:
  // sherd_disk_free_bytes and sherd_disk_bytes{disk=name}; one that cannot be looked at has none.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::shared_ptr<prometheus::Registry> registry,
      std::map<std::string, std::string> disks);
  ~MetricsServer();

  // Serves also what this collects, from now on and as long as it lives. Whoever scrapes waits for
  // it.
  void Add(const std::shared_ptr<prometheus::Collectable>& collectable);

  int port() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Adds sherd_build_info{version, compiler, component} = 1.
void AddBuildInfo(prometheus::Registry& registry, const std::string& component);

}  // namespace sherd
