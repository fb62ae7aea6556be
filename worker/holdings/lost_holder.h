#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sherd {

// `error` with the address of the process whose link it is about: one that was to store a shard, or
// to give one.
absl::Status WithLostHolder(absl::Status error, absl::string_view address);

// That address; "" of any other error.
std::string LostHolderOf(const absl::Status& error);

}  // namespace sherd
