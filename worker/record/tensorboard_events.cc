#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/record/figures.h"

namespace sherd {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as memory has them");

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;
// Ours are far shorter.
constexpr uint64_t kMostMessageBytes = 1 << 20;
constexpr absl::string_view kEvalPrefix = "eval/";

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

uint32_t MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename Value>
std::string Stored(Value value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
template <typename Value>
Value Load(absl::string_view bytes) {
  Value value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// The wire format of protocol buffers: a field is its number and type, then its value.
enum class WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string Key(int field, WireType type) {
  return Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}
std::string Bytes(int field, absl::string_view value) {
  return absl::StrCat(Key(field, WireType::kBytes), Varint(value.size()), value);
}

// Fields of Event, Summary and Summary.Value.
constexpr int kWallTime = 1;
constexpr int kStep = 2;
constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kValue = 1;
constexpr int kTag = 1;
constexpr int kSimpleValue = 2;

std::string Framed(absl::string_view message) {
  const std::string length = Stored(static_cast<uint64_t>(message.size()));
  return absl::StrCat(length, Stored(MaskedCrc(length)), message, Stored(MaskedCrc(message)));
}

std::string WallTime(double time) {
  return absl::StrCat(Key(kWallTime, WireType::kFixed64), Stored(time));
}

// The step of an Event that this file has written: it comes right behind the time.
int64_t StepOf(absl::string_view message) {
  const size_t at = 1 + sizeof(double);
  if (message.size() <= at || message[at] != Key(kStep, WireType::kVarint)[0]) return 0;
  uint64_t step = 0;
  int shift = 0;
  for (size_t i = at + 1; i < message.size() && shift < 64; ++i, shift += 7) {
    const auto byte = static_cast<uint8_t>(message[i]);
    step |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return static_cast<int64_t>(step);
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

std::string TensorBoardEvents::Header(double time) const {
  return Framed(absl::StrCat(WallTime(time), Bytes(kFileVersion, "brain.Event:2")));
}

std::string TensorBoardEvents::Record(const Figures& figures) const {
  const absl::string_view prefix = figures.evaluation ? kEvalPrefix : "train/";
  std::string summary;
  for (const auto& [name, value] : figures.values) {
    absl::StrAppend(&summary, Bytes(kValue, absl::StrCat(Bytes(kTag, absl::StrCat(prefix, name)),
                                                         Key(kSimpleValue, WireType::kFixed32),
                                                         Stored(static_cast<float>(value)))));
  }
  return Framed(absl::StrCat(WallTime(figures.time), Key(kStep, WireType::kVarint),
                             Varint(static_cast<uint64_t>(figures.step)),
                             Bytes(kSummary, summary)));
}

bool TensorBoardEvents::Take(absl::string_view& bytes, bool& evaluation, int64_t& step) const {
  constexpr size_t kHead = kLengthBytes + kCrcBytes;
  if (bytes.size() < kHead) return false;
  const auto length = Load<uint64_t>(bytes);
  if (length > kMostMessageBytes || bytes.size() < kHead + length + kCrcBytes ||
      Load<uint32_t>(bytes.substr(kLengthBytes)) != MaskedCrc(bytes.substr(0, kLengthBytes))) {
    return false;
  }
  const absl::string_view message = bytes.substr(kHead, length);
  if (Load<uint32_t>(bytes.substr(kHead + length)) != MaskedCrc(message)) return false;
  evaluation = absl::StrContains(message, kEvalPrefix);
  step = StepOf(message);
  bytes.remove_prefix(kHead + length + kCrcBytes);
  return true;
}

}  // namespace sherd
