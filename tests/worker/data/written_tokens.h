#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace sherd::written {

// Files of tokens, put together byte by byte as their public descriptions say.

// Appends numbers as they lie in memory.
template <typename Number>
void Put(std::string& bytes, Number number) {
  char stored[sizeof number];
  std::memcpy(stored, &number, sizeof number);
  bytes.append(stored, sizeof number);
}

template <typename Number, typename Numbers>
std::string Stored(const Numbers& numbers) {
  std::string bytes;
  for (const auto number : numbers) Put(bytes, static_cast<Number>(number));
  return bytes;
}

using Ids = std::vector<int64_t>;

inline std::string TokensU16(const Ids& ids) { return Stored<uint16_t>(ids); }

// llm.c: 256 numbers of 32 bits, of which three mean something.
inline std::string LlmcHeader(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return Stored<int32_t>(header);
}

inline std::string LlmcU16(const Ids& ids) {
  return LlmcHeader(20240520, 1, static_cast<int32_t>(ids.size())) + Stored<uint16_t>(ids);
}

inline std::string LlmcU32(const Ids& ids) {
  return LlmcHeader(20240801, 7, static_cast<int32_t>(ids.size())) + Stored<uint32_t>(ids);
}

// What the index of Megatron's IndexedDataset says.
struct WrittenIndex {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t type = 8;  // uint16
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers;
  std::vector<int64_t> documents;

  std::string Bytes() const {
    std::string bytes = magic;
    Put(bytes, version);
    Put(bytes, type);
    Put(bytes, static_cast<uint64_t>(lengths.size()));
    Put(bytes, static_cast<uint64_t>(documents.size()));
    return bytes + Stored<int32_t>(lengths) + Stored<int64_t>(pointers) +
           Stored<int64_t>(documents);
  }
};

// Sequences one behind the other, each a document.
inline WrittenIndex IndexOf(const std::vector<int32_t>& lengths, uint8_t type, int64_t width) {
  WrittenIndex index;
  index.type = type;
  index.lengths = lengths;
  int64_t pointer = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    index.pointers.push_back(pointer);
    index.documents.push_back(static_cast<int64_t>(i));
    pointer += lengths[i] * width;
  }
  index.documents.push_back(static_cast<int64_t>(lengths.size()));
  return index;
}

}  // namespace sherd::written
