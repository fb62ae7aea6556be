#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_split.h"
#include "common/check.h"
#include "tests/simt/sanitizer_reports.h"
#include "tests/simt/simt_ops.h"

namespace sherd::simt {
namespace {

constexpr size_t kAlignment = 256;

Order OrderOf(absl::string_view name) {
  if (name == "reverse") return Order::kReverse;
  if (name == "random") return Order::kRandom;
  SHERD_CHECK(name == "forward");
  return Order::kForward;
}

const char* NameOf(Order order) {
  return order == Order::kForward ? "forward" : order == Order::kReverse ? "reverse" : "random";
}

std::vector<std::byte> Contents(const Output& output) {
  const auto* begin = static_cast<const std::byte*>(output.data);
  return {begin, begin + output.bytes};
}

void Restore(const Output& output, const std::vector<std::byte>& before) {
  if (output.bytes == 0) return;
  if (output.overwritten) {
    std::memset(output.data, 0xff, output.bytes);
  } else {
    std::memcpy(output.data, before.data(), output.bytes);
  }
}

}  // namespace

void NanScratch::Free::operator()(void* room) const { std::free(room); }

void* NanScratch::Reserve(int64_t bytes) {
  void* room = nullptr;
  SHERD_CHECK(posix_memalign(&room, kAlignment, static_cast<size_t>(bytes)) == 0);
  std::memset(room, 0xff, static_cast<size_t>(bytes));
  kept_.emplace_back(room);
  return room;
}

Orders::Orders() {
  const char* const names = std::getenv("SHERD_SIMT_ORDERS");
  for (const absl::string_view name :
       absl::StrSplit(names == nullptr ? "forward,reverse,random" : names, ',')) {
    orders_.push_back(OrderOf(name));
  }
}

void Orders::Run(const std::vector<Output>& outputs,
                 const std::function<void(CudaKernels&)>& body) {
  std::vector<std::vector<std::byte>> before, first;
  for (const Output& output : outputs) before.push_back(Contents(output));
  for (const Order order : orders_) {
    for (size_t i = 0; i < outputs.size(); ++i) Restore(outputs[i], before[i]);
    // Other blocks and threads meet in every operation, and the same ones in every run of the test.
    executor_.set_order(order, ++seed_);
    Executor::Use(&executor_);
    CudaKernels kernels(nullptr, scratch_);
    const int reports = SanitizerReports();
    body(kernels);
    Executor::Use(nullptr);
    scratch_.Clear();
    if (!kernels.failure().empty()) {
      ADD_FAILURE() << kernels.failure() << ": " << executor_.report();
      executor_.Clear();
      return;
    }
    if (SanitizerReports() != reports) ADD_FAILURE() << "the thread sanitizer reports a race";
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (first.size() < outputs.size()) {
        first.push_back(Contents(outputs[i]));
      } else if (Contents(outputs[i]) != first[i]) {
        ADD_FAILURE() << "output " << i << " has other bits in " << NameOf(order)
                      << " order than in " << NameOf(orders_[0]);
      }
    }
  }
}

}  // namespace sherd::simt
