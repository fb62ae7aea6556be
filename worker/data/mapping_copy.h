#pragma once

#include <cstddef>

namespace sherd {

// Copies `bytes` bytes out of a mapping of a file. False when the file does not have all of them
// any more, or they cannot be read from the disk: who reads such a page is sent SIGBUS, which this
// function takes. Thread-safe. Other SIGBUSes are dealt with as before.
bool CopyFromMapping(const void* from, size_t bytes, void* to);

}  // namespace sherd
