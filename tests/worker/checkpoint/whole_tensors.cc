#include "tests/worker/checkpoint/whole_tensors.h"

namespace sherd {

Tensors WholeTensors(const std::vector<TensorDescription>& tensors, float first) {
  Tensors whole;
  for (const TensorDescription& tensor : tensors) {
    std::vector<float>& values = whole[tensor.name];
    for (int64_t i = 0; i < tensor.elements; ++i) values.push_back(first++);
  }
  return whole;
}

std::vector<float> FlatBuffer(const Unit& unit, const Tensors& tensors, float padding,
                              const std::string& prefix) {
  std::vector<float> flat;
  for (const Parameter& parameter : unit.parameters) {
    const std::vector<float>& whole = tensors.at(prefix + parameter.name);
    const int64_t columns = parameter.slice.tensor_columns();
    for (const ElementRange& rows : parameter.slice.rows) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t c = parameter.slice.columns.begin; c < parameter.slice.columns.end; ++c) {
          const auto at = static_cast<size_t>(row * columns + c);
          flat.push_back(at < whole.size() ? whole[at] : padding);
        }
      }
    }
  }
  return flat;
}

}  // namespace sherd
