#pragma once

#include <cstddef>
#include <vector>

namespace sherd::simt {

// The shared memory of one block: variables with red zones between them, full of ones (NaN, as
// floats of any width) until they are written.
class SharedMemory {
 public:
  explicit SharedMemory(size_t limit);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // For a new block: nothing is allocated, and nothing of the block before can be seen.
  void Clear();
  // The variable of that key, which its first caller allocates; null when it does not fit.
  std::byte* Find(const void* key, size_t bytes);

 private:
  struct Variable {
    const void* key;
    std::byte* data;
  };
  const size_t limit_, room_bytes_;
  std::byte* room_ = nullptr;
  size_t used_ = 0, allocated_ = 0;
  std::vector<Variable> variables_;
};

}  // namespace sherd::simt
