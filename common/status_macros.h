#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the error of `expression` from the enclosing function, if it has one.
#define SHERD_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                     \
    if (absl::Status sherd_status = (expression); !sherd_status.ok()) return sherd_status; \
  } while (false)

#define SHERD_STATUS_CONCAT_INNER(a, b) a##b
#define SHERD_STATUS_CONCAT(a, b) SHERD_STATUS_CONCAT_INNER(a, b)

// Declares or assigns `target` from a StatusOr, or returns its error.
#define SHERD_ASSIGN_OR_RETURN(target, expression) \
  SHERD_ASSIGN_OR_RETURN_IMPL(SHERD_STATUS_CONCAT(sherd_status_or_, __LINE__), target, expression)
#define SHERD_ASSIGN_OR_RETURN_IMPL(temporary, target, expression) \
  auto temporary = (expression);                                   \
  if (!temporary.ok()) return std::move(temporary).status();       \
  target = *std::move(temporary)
