#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/string_view.h"

// Every file of this folder that is named *_fuzz.cc is a target: what it does with the bytes must
// end, without a crash, a sanitizer's report or a failed FUZZ_CHECK. docs/fuzzing.md.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sherd {

inline absl::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace sherd

// What holds for all input.
#define FUZZ_CHECK(condition)                                                      \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (false)
