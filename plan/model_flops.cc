#include "plan/model_flops.h"

namespace sherd {

double ForwardFlops(const ModelShape& shape, const Inventory& inventory, const Unit& unit,
                    int64_t seq_len, int64_t tokens) {
  int64_t multiplied = 0;
  switch (unit.kind) {
    case UnitKind::kEmbedding:
      break;
    case UnitKind::kBlock:
      multiplied = unit.elements + seq_len * inventory.part.attention_channels();
      break;
    case UnitKind::kHead:
      multiplied = unit.elements + (inventory.tied ? inventory.part.vocab * shape.hidden : 0);
      break;
  }
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(multiplied);
}

double RecomputedFlops(const ModelShape& shape, const Inventory& inventory, const Unit& unit,
                       int64_t seq_len, int64_t tokens) {
  // The last matrix of a block leads to its output, which nothing of its backward reads.
  int64_t last_matrix = 0;
  for (const Parameter& parameter : unit.parameters) {
    if (parameter.shape.size() == 2) last_matrix = parameter.elements;
  }
  return ForwardFlops(shape, inventory, unit, seq_len, tokens) -
         2.0 * static_cast<double>(tokens) * static_cast<double>(last_matrix);
}

double TrainingFlops(const ModelShape& shape, const Inventory& inventory, int64_t seq_len,
                     int64_t tokens) {
  double forward = 0;
  double backward = 0;
  for (size_t index = 0; index < inventory.units.size(); ++index) {
    const double flops = ForwardFlops(shape, inventory, inventory.units[index], seq_len, tokens);
    forward += flops;
    if (static_cast<int>(index) >= inventory.first_trained) backward += flops;
  }
  return forward + kBackwardPerForward * backward;
}

}  // namespace sherd
