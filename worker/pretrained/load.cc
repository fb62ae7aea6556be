#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/checkpoint/piece_name.h"
#include "worker/pretrained/parallel_for.h"
#include "worker/pretrained/pretrained_folder.h"
#include "worker/pretrained/published_tensors.h"

namespace sherd {
namespace {

// What one thread fills before it takes the next, and what it reads at one time.
constexpr int64_t kPartElements = int64_t{1} << 20;
constexpr int64_t kReadBytes = int64_t{1} << 20;

}  // namespace

// A range of a target, as TensorTarget, that one thread fills.
struct PretrainedFolder::Part {
  const Source* source;
  // Of a tied model that has one: it must hold the same.
  const Source* head;
  std::vector<int64_t> shape;
  ElementRange columns;
  int64_t begin;
  int64_t end;
  float* data;
};

// Reads one range of one tensor.
class PretrainedFolder::Reader {
 public:
  Reader(const InputFile& file, const Source& source, const Part& part)
      : file_(file),
        source_(source),
        element_bytes_(BytesOf(source.type)),
        rows_(part.shape.front()),
        tensor_columns_(ColumnsOf(part.shape)),
        columns_(part.columns),
        begin_(part.begin),
        end_(part.end) {}

  absl::Status Read(float* out) { return source_.transposed ? ReadTransposed(out) : ReadRows(out); }
  int64_t bytes_read() const { return bytes_read_; }

 private:
  absl::Status ReadRows(float* out) {
    const int64_t width = columns_.size();
    if (width == tensor_columns_) return ReadElements(begin_, end_ - begin_, out);
    for (int64_t at = begin_; at < end_;) {
      const int64_t row = at / width;
      const int64_t column = at % width;
      const int64_t count = std::min(width - column, end_ - at);
      SHERD_RETURN_IF_ERROR(ReadElements(row * tensor_columns_ + columns_.begin + column, count,
                                         out + (at - begin_)));
      at += count;
    }
    return absl::OkStatus();
  }

  // The file holds (columns, rows). Of each of its rows that has something of the range, what all
  // rows of the range cover is read, several of them at one time.
  absl::Status ReadTransposed(float* out) {
    const int64_t width = columns_.size();
    const ElementRange rows{begin_ / width, (end_ - 1) / width + 1};
    ElementRange columns = columns_;
    if (rows.size() == 1) {
      columns = {columns_.begin + begin_ % width, columns_.begin + (end_ - 1) % width + 1};
    }
    const int64_t panel = std::max<int64_t>(1, kReadBytes / (rows.size() * element_bytes_));
    panel_.resize(static_cast<size_t>(std::min(panel, columns.size()) * rows.size()));
    for (int64_t first = columns.begin; first < columns.end; first += panel) {
      const ElementRange part{first, std::min(first + panel, columns.end)};
      SHERD_RETURN_IF_ERROR(ReadPanel(part, rows));
      Scatter(part, rows, out);
    }
    return absl::OkStatus();
  }

  // (columns, rows) of the panel.
  absl::Status ReadPanel(const ElementRange& columns, const ElementRange& rows) {
    if (rows.size() == rows_) {
      return ReadElements(columns.begin * rows_, columns.size() * rows_, panel_.data());
    }
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      SHERD_RETURN_IF_ERROR(ReadElements(column * rows_ + rows.begin, rows.size(),
                                         panel_.data() + (column - columns.begin) * rows.size()));
    }
    return absl::OkStatus();
  }

  void Scatter(const ElementRange& columns, const ElementRange& rows, float* out) const {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t row_start = row * columns_.size() - columns_.begin;
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        const int64_t at = row_start + column;
        if (at < begin_ || at >= end_) continue;
        out[at - begin_] = panel_[static_cast<size_t>((column - columns.begin) * rows.size() +
                                                      (row - rows.begin))];
      }
    }
  }

  // `count` elements from the element `at` of the file's tensor on.
  absl::Status ReadElements(int64_t at, int64_t count, float* out) {
    const int64_t most = kReadBytes / element_bytes_;
    while (count > 0) {
      const int64_t now = std::min(count, most);
      const int64_t bytes = now * element_bytes_;
      raw_.resize(static_cast<size_t>(std::max<int64_t>(bytes, static_cast<int64_t>(raw_.size()))));
      SHERD_RETURN_IF_ERROR(file_.Read(source_.offset + at * element_bytes_, bytes, raw_.data()));
      DecodeElements(source_.type, raw_.data(), now, out);
      bytes_read_ += bytes;
      at += now;
      out += now;
      count -= now;
    }
    return absl::OkStatus();
  }

  const InputFile& file_;
  const Source& source_;
  const int64_t element_bytes_;
  // Of the tensor as ours.
  const int64_t rows_;
  const int64_t tensor_columns_;
  const ElementRange columns_;
  const int64_t begin_;
  const int64_t end_;
  std::vector<std::byte> raw_;
  std::vector<float> panel_;
  int64_t bytes_read_ = 0;
};

absl::StatusOr<int64_t> PretrainedFolder::Load(absl::Span<const TensorTarget> targets, int threads,
                                               const std::function<bool()>& stop) const {
  const auto head = model_.tie_embeddings() ? sources_.find(kHeadParameter) : sources_.end();
  const std::string embedding =
      head == sources_.end() ? "" : PublishedTensorsOf(shape()).front().parameter;
  std::vector<Part> parts;
  for (const TensorTarget& target : targets) {
    const auto found = sources_.find(target.name);
    SHERD_CHECK(found != sources_.end());
    const bool tied = head != sources_.end() && target.name == embedding;
    const int64_t width = target.columns.size();
    // Whole rows, so that a transposed tensor is read in large runs.
    const int64_t step = std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, width)) * width;
    for (int64_t begin = target.begin; begin < target.end;) {
      const int64_t end = std::min(target.end, (begin / step + 1) * step);
      parts.push_back({&found->second, tied ? &head->second : nullptr, target.shape, target.columns,
                       begin, end, target.data + (begin - target.begin)});
      begin = end;
    }
  }
  std::atomic<int64_t> bytes_read{0};
  const auto read = [&](const Source& source, const Part& part, float* out) {
    Reader reader(files_[source.file], source, part);
    absl::Status status = reader.Read(out);
    bytes_read += reader.bytes_read();
    return status;
  };
  SHERD_RETURN_IF_ERROR(ParallelFor(parts.size(), threads, [&](size_t index) -> absl::Status {
    if (stop != nullptr && stop()) return absl::AbortedError("aborted while reading weights");
    const Part& part = parts[index];
    SHERD_RETURN_IF_ERROR(read(*part.source, part, part.data));
    if (part.head == nullptr) return absl::OkStatus();
    std::vector<float> same(static_cast<size_t>(part.end - part.begin));
    SHERD_RETURN_IF_ERROR(read(*part.head, part, same.data()));
    if (std::equal(same.begin(), same.end(), part.data)) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(path_, ": config.json ties the head to the embedding, but \"", part.head->name,
                     "\" differs from \"", part.source->name, "\""));
  }));
  return bytes_read.load();
}

}  // namespace sherd
