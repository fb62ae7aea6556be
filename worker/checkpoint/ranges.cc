#include <algorithm>

#include "worker/checkpoint/checkpoint.h"

namespace sherd {

void AppendRanges(const Unit& unit, const ElementRange& written, const float* data,
                  std::vector<TensorRange>& ranges) {
  for (const Parameter& parameter : unit.parameters) {
    const int64_t begin = std::max(parameter.offset, written.begin);
    const int64_t end = std::min(parameter.offset + parameter.elements, written.end);
    if (begin >= end) continue;
    for (const SliceRun& run :
         RunsOf(parameter, begin - parameter.offset, end - parameter.offset)) {
      ranges.push_back({parameter.name, parameter.slice.shape, run.columns, run.at,
                        run.at + run.count, data + (parameter.offset + run.begin - written.begin)});
    }
  }
}

}  // namespace sherd
