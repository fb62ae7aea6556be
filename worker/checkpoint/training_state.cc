#include "worker/checkpoint/training_state.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {

std::string FirstMomentName(absl::string_view parameter) {
  return absl::StrCat("optimizer.m/", parameter);
}

std::string SecondMomentName(absl::string_view parameter) {
  return absl::StrCat("optimizer.v/", parameter);
}

std::vector<TensorDescription> TrainingTensorsOf(const Inventory& inventory) {
  const std::vector<TensorDescription> weights = WeightsOf(inventory);
  std::vector<TensorDescription> tensors = weights;
  for (auto* name : {&FirstMomentName, &SecondMomentName}) {
    for (const TensorDescription& weight : weights) {
      tensors.push_back({name(weight.name), weight.shape, weight.elements});
    }
  }
  return tensors;
}

void AppendState(const Unit& unit, const ElementRange& written, const StateView& state,
                 std::vector<TensorRange>& ranges) {
  AppendRanges(unit, written, state.master, ranges);
  for (const auto& [name, data] :
       {std::pair(&FirstMomentName, state.m), std::pair(&SecondMomentName, state.v)}) {
    const size_t first = ranges.size();
    AppendRanges(unit, written, data, ranges);
    for (size_t i = first; i < ranges.size(); ++i) ranges[i].name = name(ranges[i].name);
  }
}

void AppendWeightTargets(const Unit& unit, const ElementRange& wanted, float* master,
                         std::vector<TensorTarget>& targets) {
  std::vector<TensorRange> parts;
  AppendRanges(unit, wanted, master, parts);
  for (const TensorRange& part : parts) {
    targets.push_back(
        {part.name, part.shape, part.columns, part.begin, part.end, master + (part.data - master)});
  }
}

void AppendTargets(const Unit& unit, const ElementRange& wanted, const StateTarget& state,
                   std::vector<TensorTarget>& targets) {
  std::vector<TensorRange> parts;
  AppendRanges(unit, wanted, state.master, parts);
  const auto append = [&](const std::string& name, const TensorRange& part, float* data) {
    targets.push_back(
        {name, part.shape, part.columns, part.begin, part.end, data + (part.data - state.master)});
  };
  for (const TensorRange& part : parts) append(part.name, part, state.master);
  for (const TensorRange& part : parts) append(FirstMomentName(part.name), part, state.m);
  for (const TensorRange& part : parts) append(SecondMomentName(part.name), part, state.v);
}

}  // namespace sherd
