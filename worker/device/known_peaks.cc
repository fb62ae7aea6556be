#include "worker/device/known_peaks.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace sherd {
namespace {

struct Peak {
  absl::string_view model;
  double flops;
};

// A name that another one begins with stands after it.
constexpr Peak kPeaks[] = {
    {"H200 NVL", 835e12}, {"H200", 989e12},   {"H100 PCIe", 756e12},
    {"H100 NVL", 835e12}, {"H100", 989e12},   {"GH200", 989e12},
    {"A100", 312e12},     {"GB200", 2500e12}, {"B200", 2250e12},
};

// As words of their own: an RTX A1000 is no A100.
bool Names(absl::string_view model, absl::string_view words) {
  const size_t at = model.find(words);
  if (at == absl::string_view::npos) return false;
  const size_t end = at + words.size();
  const bool begins = at == 0 || !absl::ascii_isalnum(static_cast<unsigned char>(model[at - 1]));
  const auto at_end = [&](size_t i) { return i < model.size() ? model[i] : ' '; };
  const bool ends = !absl::ascii_isalnum(static_cast<unsigned char>(at_end(end)));
  // "A100-10C" is a part of one, for a virtual machine; "A100-SXM4" is none.
  const bool is_part = at_end(end) == '-' && absl::ascii_isdigit(at_end(end + 1));
  return begins && ends && !is_part;
}

}  // namespace

double KnownPeakFlops(absl::string_view model) {
  // A part of a card has a part of its peak.
  if (absl::StrContains(model, " MIG ")) return 0;
  for (const Peak& peak : kPeaks) {
    if (Names(model, peak.model)) return peak.flops;
  }
  return 0;
}

}  // namespace sherd
