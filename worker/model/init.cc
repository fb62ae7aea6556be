#include "worker/model/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "common/check.h"
#include "common/splitmix.h"

namespace sherd {
namespace {

uint64_t HashName(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

struct NormalPair {
  double even;
  double odd;
};

NormalPair PairAt(uint64_t key, uint64_t pair) {
  const uint64_t a = SplitMix(key + (2 * pair + 1) * kSplitMixGamma);
  const uint64_t b = SplitMix(key + (2 * pair + 2) * kSplitMixGamma);
  const double u = static_cast<double>((a >> 11) + 1) * 0x1p-53;
  const double v = static_cast<double>(b >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Elements [begin, end) of the whole tensor.
void FillNormal(uint64_t key, double stddev, int64_t begin, int64_t end, float* out) {
  for (int64_t pair = begin / 2; 2 * pair < end; ++pair) {
    const NormalPair normal = PairAt(key, static_cast<uint64_t>(pair));
    const int64_t even = 2 * pair;
    if (even >= begin) out[even - begin] = static_cast<float>(stddev * normal.even);
    if (even + 1 < end) out[even + 1 - begin] = static_cast<float>(stddev * normal.odd);
  }
}

}  // namespace

void InitializeRange(const Parameter& parameter, uint64_t seed, int64_t begin, int64_t end,
                     float* out) {
  std::fill(out, out + (end - begin), 0.0f);
  if (parameter.init.kind == Initializer::Kind::kZeros) return;
  const uint64_t key = SplitMix(HashName(parameter.name) ^ SplitMix(seed + kSplitMixGamma));
  const int64_t tensor_columns = parameter.slice.tensor_columns();
  for (const SliceRun& run : RunsOf(parameter, begin, end)) {
    float* const to = out + (run.begin - begin);
    if (parameter.init.kind == Initializer::Kind::kOnes) {
      std::fill(to, to + run.count, 1.0f);
      continue;
    }
    // Of whole rows all at once, else row by row.
    const int64_t width = run.columns.size();
    for (int64_t done = 0; done < run.count;) {
      const int64_t row = (run.at + done) / width;
      const int64_t column = (run.at + done) % width;
      const int64_t rest = run.count - done;
      const int64_t count = width == tensor_columns ? rest : std::min(width - column, rest);
      const int64_t at = row * tensor_columns + run.columns.begin + column;
      FillNormal(key, parameter.init.stddev, at, at + count, to + done);
      done += count;
    }
  }
}

}  // namespace sherd
