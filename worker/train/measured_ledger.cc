#include "worker/train/measured_ledger.h"

#include <string>

namespace sherd {

namespace {

void FillMeasured(const MemoryMeter& meter, MemoryMeter::Side side,
                  google::protobuf::Map<std::string, v1::LedgerLine>& memory) {
  for (int pool = 0; pool < kPools; ++pool) {
    const int64_t peak = meter.peak(static_cast<Pool>(pool), side);
    memory[NameOf(static_cast<Pool>(pool))].set_measured(peak);
  }
  memory["peak"].set_measured(meter.peak_total(side));
}

void AddMeasured(const WireCount& count, v1::WireLine& line) {
  line.mutable_bytes()->set_measured(line.bytes().measured() + count.bytes);
  line.mutable_messages()->set_measured(line.messages().measured() + count.messages);
}

}  // namespace

void FillMeasured(const MemoryMeter& meter, const GroupCounts& step, v1::RankLedger& ledger) {
  FillMeasured(meter, MemoryMeter::Side::kDevice, *ledger.mutable_memory());
  if (meter.device() != nullptr) {
    FillMeasured(meter, MemoryMeter::Side::kHost, *ledger.mutable_host_memory());
  }
  auto& by_op = *ledger.mutable_wire();
  auto& by_group = *ledger.mutable_wire_by_group();
  v1::WireLine& total = by_op["total"];
  for (size_t group = 0; group < step.size(); ++group) {
    for (size_t op = 0; op < step[group].size(); ++op) {
      const WireCount& count = step[group][op];
      if (count.messages == 0) continue;
      AddMeasured(count, by_op[std::string(NameOf(static_cast<Collective>(op)))]);
      AddMeasured(count, by_group[std::string(NameOf(static_cast<WireGroup>(group)))]);
      AddMeasured(count, total);
    }
  }
}

GroupCounts Difference(const GroupCounts& later, const GroupCounts& earlier) {
  GroupCounts difference;
  for (size_t group = 0; group < later.size(); ++group) {
    for (size_t op = 0; op < later[group].size(); ++op) {
      const WireCount& after = later[group][op];
      const WireCount& before = earlier[group][op];
      difference[group][op] = {after.bytes - before.bytes, after.messages - before.messages,
                               after.calls - before.calls, after.seconds - before.seconds};
    }
  }
  return difference;
}

}  // namespace sherd
