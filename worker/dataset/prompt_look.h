#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker/dataset/prompt_file.h"

namespace sherd {

// Calls `each` with every line of the file `path` of prompts and completions as training takes it,
// in order, and with how many of its tokens the loss counts, until it returns false. `seq_len`:
// lines lose what lies behind the first seq_len + 1 tokens; 0: they do not. kInvalidArgument,
// naming file and byte, for a line without the two strings, and for a file without any line; errors
// of OpenBelow.
absl::Status ReadPrompts(const std::string& path, const TextCodec& codec, int64_t seq_len,
                         absl::FunctionRef<bool(const PromptLine&, int64_t counted)> each);

}  // namespace sherd
