#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"

namespace sherd {

using Tensors = std::map<std::string, std::vector<float>>;

// Values that tell tensor and place apart, counted from `first` on.
Tensors WholeTensors(const std::vector<TensorDescription>& tensors, float first = 1);

// A member's flat buffer of a unit, element by element, of the tensors `prefix` + name; `padding`
// where there is no element of a tensor.
std::vector<float> FlatBuffer(const Unit& unit, const Tensors& tensors, float padding,
                              const std::string& prefix = "");

}  // namespace sherd
