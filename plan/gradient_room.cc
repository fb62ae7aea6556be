#include "plan/gradient_room.h"

#include <algorithm>

#include "common/check.h"

namespace sherd {
namespace {

constexpr int64_t kCacheLine = 64;

}  // namespace

GradientRoom::GradientRoom(absl::Span<const int64_t> bytes, int first) {
  int64_t begin = 0;
  for (const int64_t unit_bytes : bytes) {
    SHERD_CHECK(unit_bytes % kCacheLine == 0);
    begins_.push_back(begin);
    begin += unit_bytes;
  }
  taken_ = begins_[static_cast<size_t>(first)];
  end_ = begins_.back();
}

std::optional<int64_t> GradientRoom::Take(int unit, int64_t bytes) {
  if (begins_.empty()) return std::nullopt;
  const int64_t place = taken_;
  const int64_t end = place + (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  if (end > std::min(begins_[static_cast<size_t>(unit)], end_)) return std::nullopt;
  taken_ = end;
  return place;
}

std::optional<int64_t> GradientRoom::TakeEnd(int64_t bytes) {
  const int64_t place = end_ - (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  if (begins_.empty() || place < taken_) return std::nullopt;
  end_ = place;
  return place;
}

int64_t GradientRoom::end_bytes() const {
  return begins_.size() < 2 ? 0 : begins_.back() - begins_[begins_.size() - 2];
}

}  // namespace sherd
