#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// That so many sequences are enough to hold out a part of them (0: none): kInvalidArgument, naming
// `what` holds them, when none would be.
absl::Status CheckSplit(int64_t sequences, double held_out, const std::string& what);

// Looks at a job's files before it is accepted, in a time that does not grow with their number of
// tokens (of Megatron's, all of the index is read): every pattern matches, every file opens below
// `data_root`, is of data.format, is not empty, and begins and ends with tokens below `vocab` (in
// the first and the last MiB; what lies between is checked when it is read); data.train and
// data.eval (unless absent) hold at least one sequence and the token after it, as far as can be
// seen without reading all lines of JSON; and so does each entry of data.train that has a weight.
// Files that a tokenizer makes tokens of are passed over: worker/dataset/inspect_texts.h looks at
// them. And that the output directory can be made and written below `output_root`. "" for a root
// allows any path. OK, or one sentence that names the file and what would be right.
absl::Status InspectFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                          int64_t seq_len, int64_t vocab, const std::string& data_root,
                          const std::string& output_root);

}  // namespace sherd
