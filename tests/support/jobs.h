#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sherd/v1/job.pb.h"

namespace sherd::testing {

// Every strategy that this build executes, with its variant.
inline constexpr absl::string_view kStrategies[] = {"ddp",   "zero1", "zero1 all_reduce",
                                                    "zero2", "zero3", "zero3 kept"};
// These, and hybrid sharding in groups of two where the world is even.
std::vector<absl::string_view> StrategiesOf(int world);

// What a suite's job is like; the rest are the defaults of the job file.
struct JobShape {
  int64_t layers = 3;
  int64_t hidden = 64;
  int64_t heads = 2;
  int64_t ffn = 0;
  int64_t vocab = 256;
  int64_t context = 32;
  int64_t micro_batch = 2;
  int64_t steps = 10;
};

// A valid, normalised job: `strategy` as in kStrategies, `micro_batches` micro-batches a step,
// units reduced one by one, no copies of state (elastic.replicas).
v1::JobSpec MakeJob(absl::string_view strategy, v1::DataType type, int64_t micro_batches,
                    const JobShape& shape = {}, const std::string& text_path = "text");

// Turns the model of a normalised job into a Llama of the same sizes, all of whose heads share one
// head of keys and values, and with scaled rotary frequencies.
void MakeLlama(v1::JobSpec& spec);

// Changes the strategy of a normalised job.
void SetStrategy(absl::string_view strategy, v1::JobSpec& spec);

}  // namespace sherd::testing
