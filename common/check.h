#pragma once

#include <cstdio>
#include <cstdlib>

// Ends the process when a condition that only a bug of ours can break is broken. Expected failures
// are absl::Status.
#define SHERD_CHECK(condition)                                                           \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
