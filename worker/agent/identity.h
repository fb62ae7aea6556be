#pragma once

#include <cstdint>
#include <string>

namespace sherd {

// This machine's name.
std::string HostName();
// Equal strings promise equal bits: build, compiler, the instruction sets that kernels choose by.
std::string NumericsFingerprint();
// Physical memory of this machine in bytes.
int64_t HostMemoryBytes();
// Cores that this process may use.
int HostCores();
// A number that no other life of any worker has; never 0.
uint64_t DrawIncarnation();

}  // namespace sherd
