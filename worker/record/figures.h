#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace sherd {

// What a job tells of a step, or of an evaluation after it, in a file that people plot.
struct Figures {
  bool evaluation = false;
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t tokens = 0;
  // Seconds since 1970.
  double time = 0;
  // By name: loss, grad_norm, lr, tokens_per_second, step_ms; of an evaluation the loss alone.
  std::map<std::string, double> values;
};

// How a file holds figures, record after record.
class FigureFormat {
 public:
  virtual ~FigureFormat() = default;
  // What a file begins with.
  virtual std::string Header(double time) const = 0;
  virtual std::string Record(const Figures& figures) const = 0;
  // Takes a whole record off the front of `bytes`, and tells what it is of in `evaluation` and
  // `step` (0: the header). False when there is none, or a damaged one.
  virtual bool Take(absl::string_view& bytes, bool& evaluation, int64_t& step) const = 0;
};

// A JSON object a line; events and names are those of `sherd watch -o json`.
class MetricsJsonl final : public FigureFormat {
 public:
  std::string Header(double) const override { return ""; }
  std::string Record(const Figures& figures) const override;
  bool Take(absl::string_view& bytes, bool& evaluation, int64_t& step) const override;
};

// TensorBoard's event files: TFRecords of Event messages (tensorflow/core/util/event.proto), each
//   length (uint64) · masked CRC-32C of it · message · masked CRC-32C of that
// all little-endian; a CRC c is stored as (c >> 15 | c << 17) + 0xa282ead8
// (tensorflow/core/lib/hash/crc32c.h). Values are single precision, as TensorBoard has them, under
// the tags train/NAME and eval/NAME.
class TensorBoardEvents final : public FigureFormat {
 public:
  std::string Header(double time) const override;
  std::string Record(const Figures& figures) const override;
  bool Take(absl::string_view& bytes, bool& evaluation, int64_t& step) const override;
};

// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t Crc32c(absl::string_view bytes);

}  // namespace sherd
