#pragma once

#include <string>

#include "client/progress.h"
#include "client/render_json.h"

namespace sherd {

// Prints a value on stdout in the format that was asked for; `text` is its table.
void Print(OutputFormat format, const Json& json, const std::string& text);

}  // namespace sherd
