#include "common/metrics.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"

namespace sherd {

struct MetricsServer::Impl {
  std::unique_ptr<prometheus::Exposer> exposer;
  std::shared_ptr<prometheus::Registry> registry;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::shared_ptr<prometheus::Registry> registry) {
  auto impl = std::make_unique<Impl>();
  impl->registry = std::move(registry);
  // The exposer reports a taken port by an exception.
  try {
    impl->exposer = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/1);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics at ", address,
                     ": the port is taken or the address is not of this host (", error.what(),
                     "); give another --metrics address"));
  }
  impl->exposer->RegisterCollectable(impl->registry);
  const std::vector<int> ports = impl->exposer->GetListeningPorts();
  impl->port = ports.empty() ? 0 : ports.front();
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return impl_->port; }

void AddBuildInfo(prometheus::Registry& registry, const std::string& component) {
  prometheus::BuildGauge()
      .Name("sherd_build_info")
      .Help("Version and compiler of the running binary; the value is always 1.")
      .Register(registry)
      .Add({{"version", SHERD_VERSION}, {"compiler", __VERSION__}, {"component", component}})
      .Set(1);
}

}  // namespace sherd
