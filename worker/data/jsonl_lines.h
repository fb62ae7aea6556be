#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/mapped_file.h"

namespace sherd {

// Reads the texts of JSON objects, one a line, from a part of a file. Not thread-safe.
class JsonlLines {
 public:
  // From byte `begin`, where a line starts, up to `end`, where one ends. The file outlives it.
  JsonlLines(const MappedFile& file, int64_t begin, int64_t end)
      : file_(file), buffer_at_(begin), next_(begin), end_(end) {}

  // The next line's text; false at the end. Lines of white space are left out. kInvalidArgument,
  // naming file, byte and reason, for a line that is no object with a "text" or that is longer than
  // 64 MiB; errors of MappedFile::Read.
  absl::StatusOr<bool> Next(std::string& text);
  // The same with other keys, the strings of which go into `texts`, in that order.
  absl::StatusOr<bool> NextOf(absl::Span<const absl::string_view> keys,
                              absl::Span<std::string> texts);
  // Where the line starts that was given last, and where the one after it does.
  int64_t line_start() const { return line_start_; }
  int64_t next_start() const { return next_; }

 private:
  // The next line without its end; false at the end of the file.
  absl::StatusOr<bool> NextLine(absl::string_view& line);

  const MappedFile& file_;
  std::string buffer_;
  int64_t buffer_at_;  // the byte of the file that the buffer starts with
  int64_t line_start_ = 0;
  int64_t next_;
  const int64_t end_;
};

}  // namespace sherd
