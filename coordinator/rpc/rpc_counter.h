#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace sherd {

// sherd_rpcs_total{method, code}, and of calls that are answered at once sherd_rpc_seconds{method}.
// Thread-safe.
class RpcCounter {
 public:
  explicit RpcCounter(prometheus::Registry& registry)
      : family_(prometheus::BuildCounter()
                    .Name("sherd_rpcs_total")
                    .Help("Finished calls by method and status code.")
                    .Register(registry)),
        seconds_(prometheus::BuildHistogram()
                     .Name("sherd_rpc_seconds")
                     .Help("Time from a call to its answer, by method; streams are not counted.")
                     .Register(registry)) {}

  void Count(const std::string& method, const absl::Status& status) {
    family_.Add({{"method", method}, {"code", absl::StatusCodeToString(status.code())}})
        .Increment();
  }
  void Took(const std::string& method, absl::Duration time) {
    seconds_
        .Add({{"method", method}},
             prometheus::Histogram::BucketBoundaries{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                     0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15})
        .Observe(absl::ToDoubleSeconds(time));
  }

 private:
  prometheus::Family<prometheus::Counter>& family_;
  prometheus::Family<prometheus::Histogram>& seconds_;
};

}  // namespace sherd
