#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sherd {

// Exit codes of commands that work on files of this machine; a contract with scripts.
inline constexpr int kFileCommandOther = 1;
inline constexpr int kFileCommandUsage = 2;

// Of an error: kFileCommandUsage when what the user named is missing, damaged, forbidden or of the
// wrong kind, kFileCommandOther for anything else.
int FileCommandCode(const absl::Status& error);

// An error's sentence without the words that say where a worker looked: here that is the user's own
// machine.
std::string AsToldHere(absl::string_view sentence);

}  // namespace sherd
