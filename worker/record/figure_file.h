#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "worker/checkpoint/file_system.h"
#include "worker/record/figures.h"

namespace sherd {

// A file of figures that grows over the epochs of a job: each step and each evaluation is in it
// once, in order. For one thread at a time.
class FigureFile {
 public:
  // All must outlive it.
  FigureFile(FileSystem& files, const FigureFormat& format, std::string directory,
             std::string name);

  // Begins with what the file in `directory` has of the steps up to `last`, in a copy that takes
  // its place: whoever still writes to the old one, of an epoch that has ended, writes to nothing.
  // `unique` is in the copy's name while it is written.
  absl::Status Open(int64_t last, absl::string_view unique, double time);
  // Nothing for a step, or an evaluation after one, that it has already.
  absl::Status Add(const Figures& figures);

 private:
  absl::Status CopyUpTo(int64_t last);

  FileSystem& files_;
  const FigureFormat& format_;
  const std::string directory_;
  const std::string name_;
  std::unique_ptr<OutputFile> out_;
  int64_t last_step_ = 0;
  int64_t last_evaluation_ = 0;
};

}  // namespace sherd
