#include "worker/train/measured_ledger.h"

#include <string>

namespace sherd {

void FillMeasured(const MemoryMeter& meter, const WireCounts& step, v1::RankLedger& ledger) {
  for (int pool = 0; pool < kPools; ++pool) {
    const int64_t peak = meter.peak(static_cast<Pool>(pool));
    (*ledger.mutable_memory())[NameOf(static_cast<Pool>(pool))].set_measured(peak);
  }
  (*ledger.mutable_memory())["peak"].set_measured(meter.peak_total());
  int64_t bytes = 0;
  int64_t messages = 0;
  for (int op = 0; op < kCollectives; ++op) {
    const WireCount& count = step[static_cast<size_t>(op)];
    const std::string name(NameOf(static_cast<Collective>(op)));
    if (count.calls == 0 && !ledger.wire().contains(name)) continue;
    v1::WireLine& line = (*ledger.mutable_wire())[name];
    line.mutable_bytes()->set_measured(count.bytes);
    line.mutable_messages()->set_measured(count.messages);
    bytes += count.bytes;
    messages += count.messages;
  }
  v1::WireLine& total = (*ledger.mutable_wire())["total"];
  total.mutable_bytes()->set_measured(bytes);
  total.mutable_messages()->set_measured(messages);
}

WireCounts Difference(const WireCounts& later, const WireCounts& earlier) {
  WireCounts difference;
  for (size_t op = 0; op < later.size(); ++op) {
    difference[op].bytes = later[op].bytes - earlier[op].bytes;
    difference[op].messages = later[op].messages - earlier[op].messages;
    difference[op].calls = later[op].calls - earlier[op].calls;
    difference[op].seconds = later[op].seconds - earlier[op].seconds;
  }
  return difference;
}

}  // namespace sherd
