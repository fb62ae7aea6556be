#pragma once

#include <string>

#include "absl/status/status.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/registry.h"

namespace sherd {

// sherd_rpcs_total{method, code}. Thread-safe.
class RpcCounter {
 public:
  explicit RpcCounter(prometheus::Registry& registry)
      : family_(prometheus::BuildCounter()
                    .Name("sherd_rpcs_total")
                    .Help("Finished calls by method and status code.")
                    .Register(registry)) {}

  void Count(const std::string& method, const absl::Status& status) {
    family_.Add({{"method", method}, {"code", absl::StatusCodeToString(status.code())}})
        .Increment();
  }

 private:
  prometheus::Family<prometheus::Counter>& family_;
};

}  // namespace sherd
