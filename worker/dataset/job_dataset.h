#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sherd/v1/job.pb.h"
#include "worker/data/batches.h"

namespace sherd {

struct DatasetOptions {
  // What the files lie below; "": anywhere.
  std::string data_root;
  // Absolute. Tokens that are made of text are kept there, for who opens the same data later: it is
  // on a file system that all ranks share, as checkpoint.dir is.
  std::string cache_directory;
  // To tokenize with.
  int threads = 1;
  // True: opening ends with kAborted before long. May be null.
  std::function<bool()> stopped;
};

// What a job trains and is evaluated on.
struct JobDataset {
  TrainingData train;
  // Absent: nothing is held out.
  std::optional<EvaluationData> eval;
  // Of all entries of data.train.
  int64_t corpus_tokens = 0;
  // Sentences for the job's log.
  std::vector<std::string> notes;
};

// Opens the data of a normalised specification. Text that a tokenizer.json makes tokens of, and
// lines of prompts and completions, are tokenized by whichever rank comes first, and opened by all.
// Errors name the file.
absl::StatusOr<JobDataset> OpenJobDataset(const v1::JobSpec& spec, const DatasetOptions& options);

// The sequences that some files make, and of how many tokens.
struct OpenedSequences {
  std::unique_ptr<Sequences> sequences;
  int64_t tokens = 0;
  // A sentence for a log, or "".
  std::string note;
};
// Opens what `patterns` name, as `data` says how they hold tokens. A tail is kept of text and ids
// only: other sequences are as they are.
absl::StatusOr<OpenedSequences> OpenSequences(const v1::DataSpec& data,
                                              const std::vector<std::string>& patterns,
                                              int64_t seq_len, int64_t vocab, Tail tail,
                                              const DatasetOptions& options);

// Of text files that a tokenizer.json makes tokens of, and of those of prompts and completions, a
// list may have so many bytes: more takes too long when a job starts, and is packed beforehand.
inline constexpr int64_t kMostTextBytes = int64_t{1} << 30;
inline constexpr int64_t kMostPromptBytes = int64_t{1} << 28;
// kInvalidArgument when the files of a list have more.
absl::Status CheckTextBytes(const std::string& root, const std::vector<std::string>& files,
                            v1::DataFormat format);

}  // namespace sherd
