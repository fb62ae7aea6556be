#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// What InspectFiles (worker/data/inspect.h) leaves out, in a time that does not grow with the size
// of the files: the tokenizer can be read and its ids are below `vocab`; text that it makes tokens
// of is not too much, and is text, or lines of JSON, in the first and the last MiB of each file;
// data.train, each entry of it that has a weight, and data.eval hold at least one sequence, as far
// as can be seen. OK, or one sentence that names the field, the file and what would be right.
absl::Status InspectTexts(const v1::DataSpec& data, int64_t seq_len, int64_t vocab,
                          const std::string& data_root);

}  // namespace sherd
