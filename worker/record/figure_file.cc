#include "worker/record/figure_file.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr size_t kReadBytes = 1 << 20;

}  // namespace

FigureFile::FigureFile(FileSystem& files, const FigureFormat& format, std::string directory,
                       std::string name)
    : files_(files), format_(format), directory_(std::move(directory)), name_(std::move(name)) {}

absl::Status FigureFile::Open(int64_t last, absl::string_view unique, double time) {
  SHERD_RETURN_IF_ERROR(files_.MakeDirectories(directory_));
  const std::string copy = absl::StrCat(directory_, "/.", name_, ".", unique, ".partial");
  SHERD_ASSIGN_OR_RETURN(out_, files_.Create(copy));
  SHERD_RETURN_IF_ERROR(out_->Append(format_.Header(time)));
  SHERD_RETURN_IF_ERROR(CopyUpTo(last));
  return files_.Rename(copy, absl::StrCat(directory_, "/", name_));
}

absl::Status FigureFile::CopyUpTo(int64_t last) {
  std::ifstream old(absl::StrCat(directory_, "/", name_), std::ios::binary);
  std::string buffer;
  std::string kept;
  // Up to the first record that is cut off or damaged: nothing behind it can be told apart.
  while (old) {
    const size_t had = buffer.size();
    buffer.resize(had + kReadBytes);
    old.read(buffer.data() + had, kReadBytes);
    buffer.resize(had + static_cast<size_t>(old.gcount()));
    absl::string_view rest = buffer;
    kept.clear();
    bool evaluation = false;
    int64_t step = 0;
    for (absl::string_view from = rest; format_.Take(rest, evaluation, step); from = rest) {
      int64_t& newest = evaluation ? last_evaluation_ : last_step_;
      if (step == 0 || step > last || step <= newest) continue;
      newest = step;
      absl::StrAppend(&kept, from.substr(0, from.size() - rest.size()));
    }
    SHERD_RETURN_IF_ERROR(out_->Append(kept));
    const bool stuck = rest.size() == buffer.size() && rest.size() >= 2 * kReadBytes;
    buffer = std::string(rest);
    if (stuck) break;
  }
  return absl::OkStatus();
}

absl::Status FigureFile::Add(const Figures& figures) {
  int64_t& newest = figures.evaluation ? last_evaluation_ : last_step_;
  if (figures.step <= newest) return absl::OkStatus();
  newest = figures.step;
  return out_->Append(format_.Record(figures));
}

}  // namespace sherd
