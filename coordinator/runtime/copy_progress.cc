#include "coordinator/runtime/copy_progress.h"

#include <algorithm>

namespace sherd {

bool CopyProgress::Judge(const Positions& first, const Positions& second, absl::Time now) {
  int64_t wanted = 1;
  if (judged_ == absl::InfinitePast()) {
    for (const auto& [rank, position] : first) bytes_[rank] = position.copied_bytes();
  } else {
    wanted = std::max<int64_t>(
        1, absl::ToInt64Milliseconds(now - judged_) * kSlowestCopyBytesPerSecond / 1000);
  }
  bool copies = false;
  for (const auto& [rank, position] : second) {
    const auto before = bytes_.find(rank);
    copies =
        copies || (before != bytes_.end() && position.copied_bytes() - before->second >= wanted);
    bytes_[rank] = position.copied_bytes();
  }
  judged_ = now;
  return copies;
}

}  // namespace sherd
