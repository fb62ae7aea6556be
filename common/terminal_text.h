#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sherd {

// Bytes that come piece by piece, as text that does nothing to a terminal but to write: lines and
// tabs stay, other control characters and bytes that are not UTF-8 are spelled out ("\x1b").
class TerminalText {
 public:
  // What can be shown now; an unfinished character waits for the next piece.
  std::string Add(absl::string_view bytes);
  // What still waits, spelled out.
  std::string Finish();

 private:
  std::string waiting_;
};

}  // namespace sherd
