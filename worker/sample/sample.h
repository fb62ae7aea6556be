#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace sherd {

struct SampleOptions {
  // The directory of weights that a job left.
  std::string weights{};
  // Of a tokenizer.json; "": the one that the weights name.
  std::string tokenizer{};
  // Printed first. Empty: generation starts as if after a line's end.
  std::string prompt{};
  // To generate.
  int64_t tokens = 256;
  // 0: always the likeliest token.
  double temperature = 0.8;
  // Draws among this many likeliest tokens; 0: all.
  int64_t top_k = 0;
  uint64_t seed = 1;
  int threads = 1;
  // Control characters and bytes that are not UTF-8 are spelled out (TerminalText).
  bool for_terminal = false;
};

// Prints the prompt and what the model makes of it, token by token as they come, the bytes as they
// are, also when they are not UTF-8, unless for a terminal. The same options give the same text on
// equal machines. When the context is full the oldest token leaves it. kInvalidArgument for an
// option out of range; kNotFound and kDataLoss, naming the path, when the weights are missing or
// damaged; kUnavailable when `out` fails.
absl::Status RunSample(const SampleOptions& options, std::ostream& out);

}  // namespace sherd
