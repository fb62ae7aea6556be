#include "bench/model_flops.h"

namespace sherd {

double TrainingFlops(const ModelShape& shape, const Inventory& inventory, int64_t seq_len,
                     int64_t tokens) {
  int64_t multiplied = inventory.elements;
  // Learned positions are added.
  if (shape.arch == Architecture::kGpt2) multiplied -= shape.context * shape.hidden;
  if (!inventory.tied) multiplied -= shape.vocab * shape.hidden;
  const int64_t attention = shape.layers * seq_len * shape.hidden;
  return 6.0 * static_cast<double>(tokens) * static_cast<double>(multiplied + attention);
}

}  // namespace sherd
