#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/pack/pieces_run.h"

namespace sherd {

// How token files are written; the names are those of data.format in job files.
enum class PackFormat {
  kLlmc,       // a header, then uint16, or uint32 for a vocabulary beyond 65,536
  kTokensU16,  // uint16 alone
};

struct PackOptions {
  // The tokenizer and the files lie below; "": anywhere.
  std::string root;
  std::string tokenizer;  // path of a tokenizer.json
  std::string out;        // must not exist
  std::vector<std::string> files;
  PackFormat format = PackFormat::kLlmc;
  bool jsonl = false;
  std::string field = "text";
  // Ends each document; none: what the tokenizer calls so (<|endoftext|>, <|end_of_text|>).
  std::optional<std::string> end_token;
  bool no_end_token = false;
  // A tokenizer that calls none so is no error: documents follow one another.
  bool may_lack_end_token = false;
  bool post_process = false;
  bool special_as_text = false;
  int threads = 1;
  // About so many bytes of the files are tokenized and stored as one.
  int64_t piece_bytes = 16 << 20;
  // True: it ends with kAborted before long, and what is stored stays. May be null.
  std::function<bool()> stopped;
};

struct PackSummary {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;  // of the input files
  int64_t vocab = 0;
  int id_bytes = 0;
  size_t pieces = 0;
  // Those that a run before this one had left.
  size_t found_pieces = 0;
  double seconds = 0;
};

// Of all that decides which tokens come out, as far as can be told without reading the files: their
// names, sizes and times. Errors of opening them.
absl::StatusOr<uint64_t> FingerprintOf(const PackOptions& options);

// Tokenizes files into one token file. The same options and files give the same bytes, whatever the
// number of threads and however often the run was killed and started again: it goes on from the
// pieces in OUT.pieces. Memory is bounded by the threads, the pieces and the longest document.
// kAlreadyExists when the file exists; kInvalidArgument names what is wrong with which file;
// errors of DocumentTokenizer and PieceStore.
absl::StatusOr<PackSummary> Pack(const PackOptions& options,
                                 absl::FunctionRef<void(const PackProgress&)> on_progress);

}  // namespace sherd
