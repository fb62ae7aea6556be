#include "common/metrics.h"

#include <exception>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/metric_family.h"

namespace sherd {
namespace {

// Who are served at one time: one may stand still in the middle of a page.
constexpr size_t kReaders = 2;

// What is free is looked at when it is asked for.
class Disks final : public prometheus::Collectable {
 public:
  explicit Disks(std::map<std::string, std::string> directories)
      : directories_(std::move(directories)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families(2);
    families[0].name = "sherd_disk_free_bytes";
    families[0].help = "What unprivileged users may still write, by what the disk is for.";
    families[1].name = "sherd_disk_bytes";
    families[1].help = "Size of the file system, by what it is for.";
    for (prometheus::MetricFamily& family : families) {
      family.type = prometheus::MetricType::Gauge;
    }
    for (const auto& [name, directory] : directories_) {
      std::error_code error;
      const std::filesystem::space_info space = std::filesystem::space(directory, error);
      if (error) continue;
      const std::uintmax_t values[] = {space.available, space.capacity};
      for (size_t i = 0; i < families.size(); ++i) {
        prometheus::ClientMetric metric;
        metric.label = {{"disk", name}};
        metric.gauge.value = static_cast<double>(values[i]);
        families[i].metric.push_back(std::move(metric));
      }
    }
    return families;
  }

 private:
  const std::map<std::string, std::string> directories_;
};

}  // namespace

struct MetricsServer::Impl {
  std::unique_ptr<prometheus::Exposer> exposer;
  std::shared_ptr<prometheus::Registry> registry;
  std::shared_ptr<Disks> disks;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::shared_ptr<prometheus::Registry> registry,
    std::map<std::string, std::string> disks) {
  auto impl = std::make_unique<Impl>();
  impl->registry = std::move(registry);
  impl->disks = std::make_shared<Disks>(std::move(disks));
  // The exposer reports a taken port by an exception.
  try {
    impl->exposer = std::make_unique<prometheus::Exposer>(address, kReaders);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics at ", address,
                     ": the port is taken or the address is not of this host (", error.what(),
                     "); give another --metrics address"));
  }
  impl->exposer->RegisterCollectable(impl->registry);
  impl->exposer->RegisterCollectable(impl->disks);
  const std::vector<int> ports = impl->exposer->GetListeningPorts();
  impl->port = ports.empty() ? 0 : ports.front();
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

void MetricsServer::Add(const std::shared_ptr<prometheus::Collectable>& collectable) {
  impl_->exposer->RegisterCollectable(collectable);
}

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
