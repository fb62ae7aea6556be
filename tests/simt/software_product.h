#pragma once

#include "kernels/cuda/driver.h"

namespace sherd::simt {

// The product by the processor's library, on the calling thread: operands widened, sums in fp32.
void MultiplyOnHost(const Product& product);

}  // namespace sherd::simt
