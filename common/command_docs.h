#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sherd {

// What a program's command line is, told in other forms: all of them are made from the declaration
// that parses it. Options of the group "" are nobody's business and left out.

// A page of section 1 of the manual, in man(7) macros: synopsis, options, commands with theirs, and
// the environment variables that stand for options. That of "tool list" is called tool-list.
std::string ManualPage(const CLI::App& app);

// Adds the flag --man, which prints the page, to `app`; nobody's help shows it.
void AddManual(CLI::App& app);

// A script that has a shell complete the names of commands and options; `shell` is "bash", "zsh" or
// "fish". kInvalidArgument for another.
absl::StatusOr<std::string> CompletionScript(const CLI::App& app, absl::string_view shell);

}  // namespace sherd
