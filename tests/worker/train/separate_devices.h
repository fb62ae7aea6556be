#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/support/jobs.h"
#include "tests/support/separate_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"

namespace sherd::testing {

// A device for each rank.
class Devices {
 public:
  explicit Devices(int world, int64_t memory_bytes = int64_t{256} << 20) {
    for (int rank = 0; rank < world; ++rank) {
      devices_.push_back(std::make_unique<SeparateDevice>(memory_bytes));
    }
  }
  std::vector<Accelerator*> accelerators() const {
    std::vector<Accelerator*> all;
    for (const auto& device : devices_) all.push_back(device.get());
    return all;
  }
  SeparateDevice& at(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  std::vector<RankRecord> Run(const v1::JobSpec& spec,
                              const std::set<v1::GroupKind>& over_tcp = {}) const {
    LocalEpoch epoch;
    epoch.over_tcp = over_tcp;
    epoch.accelerators = accelerators();
    return LocalWorld(spec, static_cast<int>(devices_.size()), std::move(epoch)).Run();
  }

 private:
  std::vector<std::unique_ptr<SeparateDevice>> devices_;
};

// Small jobs that evaluate too.
class DeviceJobs : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy, v1::DataType type, int64_t micro_batches,
                  int64_t steps = 3) const {
    v1::JobSpec spec = TinyJob(text_, strategy, type, micro_batches, steps);
    spec.mutable_data()->add_eval(held_out_);
    return spec;
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", MakeText(3000, 3));
  const std::string held_out_ = scratch_.Write("eval.txt", MakeText(100, 4));
};

inline RunOutcome TrainOnHost(const v1::JobSpec& spec, int world) {
  return OutcomeOf(LocalWorld(spec, world).Run());
}

inline RunOutcome TrainOnDevices(const v1::JobSpec& spec, int world,
                                 const std::set<v1::GroupKind>& over_tcp = {}) {
  Devices devices(world);
  const RunOutcome outcome = OutcomeOf(devices.Run(spec, over_tcp));
  for (int rank = 0; rank < world; ++rank) {
    EXPECT_EQ(devices.at(rank).most_used_bytes(), devices.at(rank).reserved_bytes());
    EXPECT_GT(devices.at(rank).bytes_in(), 0);
    EXPECT_EQ(devices.at(rank).used_bytes(), 0);
    EXPECT_EQ(devices.at(rank).locked_bytes(), 0);
  }
  return outcome;
}

// To the byte, on the device and on the host beside it; but for what the kernels of these devices,
// which are the processor's, work in.
inline void ExpectExactLedgersOnDevices(const std::vector<RankRecord>& ranks,
                                        const std::string& what) {
  for (const RankRecord& rank : ranks) {
    ASSERT_TRUE(rank.result.status.ok()) << what << ": " << rank.result.status;
    const v1::RankLedger& ledger = rank.ledgers.back();
    for (const bool on_host : {false, true}) {
      const auto& memory = on_host ? ledger.host_memory() : ledger.memory();
      ASSERT_TRUE(memory.contains("peak")) << what;
      for (const auto& [pool, line] : memory) {
        if (pool == "scratch") continue;
        const bool with_scratch = pool == "peak" && !on_host;
        const int64_t scratch = with_scratch ? memory.at("scratch").measured() : 0;
        EXPECT_EQ(line.measured() - scratch, line.predicted())
            << pool << (on_host ? " on the host" : "") << " of rank " << ledger.rank() << ", "
            << what;
      }
    }
  }
}

}  // namespace sherd::testing
