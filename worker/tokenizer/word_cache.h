#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/tokenizer/merges.h"

namespace sherd {

// The tokens of words met before: a table of fixed size in which a word takes the place of another.
// Words are short and repeat themselves. For one thread at a time.
class WordCache {
 public:
  static constexpr size_t kMostWordBytes = 23;
  static constexpr size_t kMostTokens = 9;

  WordCache() : entries_(kEntries) {}

  // The tokens of a word of 1 … kMostWordBytes bytes; empty when it is not here. Valid until Put.
  absl::Span<const TokenId> Find(absl::string_view word) {
    uint64_t key[3] = {};
    std::memcpy(key, word.data(), word.size());
    // No word ends here, so that it tells apart those that end with NUL bytes.
    key[2] |= static_cast<uint64_t>(word.size()) << 56;
    uint64_t hash = (key[0] ^ key[1] * kGamma ^ (key[2] << 17 | key[2] >> 47)) * kGamma;
    hash ^= hash >> 32;
    sought_ = &entries_[(hash * kGamma) >> (64 - kEntryBits)];
    if (std::memcmp(sought_->key, key, sizeof(key)) == 0) {
      return {sought_->tokens, sought_->count};
    }
    std::memcpy(sought_key_, key, sizeof(key));
    return {};
  }
  // Keeps 1 … kMostTokens tokens of the word that the last Find did not find.
  void Put(absl::Span<const TokenId> tokens) {
    std::memcpy(sought_->key, sought_key_, sizeof(sought_key_));
    sought_->count = static_cast<uint32_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), sought_->tokens);
  }

 private:
  static constexpr int kEntryBits = 15;
  static constexpr size_t kEntries = size_t{1} << kEntryBits;
  static constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

  // A cache line.
  struct alignas(64) Entry {
    uint64_t key[3] = {};  // zero: nothing
    uint32_t count = 0;
    TokenId tokens[kMostTokens] = {};
  };

  std::vector<Entry> entries_;
  Entry* sought_ = nullptr;
  uint64_t sought_key_[3] = {};
};

}  // namespace sherd
