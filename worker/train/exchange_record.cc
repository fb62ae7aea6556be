#include "worker/train/exchange_record.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "plan/ledger.h"

namespace sherd {
namespace {

// In the fixed part, behind the squares.
constexpr size_t kPauseAt = sizeof(ExactSum);
constexpr size_t kSaveAt = kPauseAt + 1;
constexpr size_t kSaveErrorAt = kSaveAt + 1;
constexpr size_t kBusyAt = kPauseAt + sizeof(uint64_t);

}  // namespace

void ExchangeRecord::Write(absl::Span<std::byte> record) const {
  const size_t rounds = losses.size();
  SHERD_CHECK(tokens.size() == rounds);
  SHERD_CHECK(static_cast<int64_t>(record.size()) ==
              kExchangeFixedBytes + kExchangeBytesPerRound * static_cast<int64_t>(rounds));
  static_assert(kBusyAt + sizeof(double) <= kExchangeFixedBytes);
  std::fill(record.begin(), record.begin() + kExchangeFixedBytes, std::byte{0});
  std::memcpy(record.data(), &squares, sizeof(squares));
  record[kPauseAt] = static_cast<std::byte>(pause ? 1 : 0);
  record[kSaveAt] = static_cast<std::byte>(save.state);
  record[kSaveErrorAt] = static_cast<std::byte>(save.why);
  std::memcpy(record.data() + kBusyAt, &busy_seconds, sizeof(busy_seconds));
  std::byte* const rows = record.data() + kExchangeFixedBytes;
  std::memcpy(rows, losses.data(), rounds * sizeof(double));
  std::memcpy(rows + rounds * sizeof(double), tokens.data(), rounds * sizeof(int64_t));
}

ExchangeRecord ExchangeRecord::Read(absl::Span<const std::byte> record) {
  const size_t rounds = (record.size() - kExchangeFixedBytes) / kExchangeBytesPerRound;
  ExchangeRecord out;
  out.losses.resize(rounds);
  out.tokens.resize(rounds);
  std::memcpy(&out.squares, record.data(), sizeof(out.squares));
  out.pause = record[kPauseAt] != std::byte{0};
  out.save.state = static_cast<SaveWord::State>(record[kSaveAt]);
  out.save.why = static_cast<absl::StatusCode>(record[kSaveErrorAt]);
  std::memcpy(&out.busy_seconds, record.data() + kBusyAt, sizeof(out.busy_seconds));
  const std::byte* const rows = record.data() + kExchangeFixedBytes;
  std::memcpy(out.losses.data(), rows, rounds * sizeof(double));
  std::memcpy(out.tokens.data(), rows + rounds * sizeof(double), rounds * sizeof(int64_t));
  return out;
}

}  // namespace sherd
