#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace sherd {

using TokenId = uint32_t;

// What merging two neighbours gives, and how early: the least rank goes first.
struct Merge {
  uint32_t rank = 0;
  TokenId merged = 0;
};

// The merges of a byte-pair encoding, by their two tokens. Thread-safe once all are added.
class MergeTable {
 public:
  // Room for `merges` of them.
  explicit MergeTable(size_t merges);

  // False when the pair is there already.
  bool Add(TokenId left, TokenId right, Merge merge);
  // nullptr when the two do not merge.
  const Merge* Find(TokenId left, TokenId right) const {
    const uint64_t key = KeyOf(left, right);
    for (size_t slot = SlotOf(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return &slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t KeyOf(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }
  size_t SlotOf(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }

  size_t mask_;
  int shift_;
  std::vector<Slot> slots_;
};

// Merges the neighbours of words. Holds memory between calls; for one thread at a time.
class WordMerger {
 public:
  // Both must outlive this.
  WordMerger(const MergeTable& merges, const std::array<TokenId, 256>& byte_tokens)
      : merges_(merges), byte_tokens_(byte_tokens) {}

  // Appends the tokens of a word of n >= 1 bytes: of all pairs of neighbours that merge, always the
  // one of least rank, and of equals the leftmost. O(n log n) time.
  void Append(absl::string_view word, std::vector<TokenId>& tokens);

 private:
  // Words up to here are scanned for the least rank at each step.
  static constexpr size_t kShortBytes = 40;
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Symbol {
    TokenId token;
    uint32_t previous;
    uint32_t next;  // kNone: the last one
    bool gone;      // merged into the one before
  };
  struct Candidate {
    Merge merge;
    uint32_t position;
  };

  void AppendShort(absl::string_view word, std::vector<TokenId>& tokens) const;
  void AppendLong(absl::string_view word, std::vector<TokenId>& tokens);
  void AddCandidate(uint32_t position);

  const MergeTable& merges_;
  const std::array<TokenId, 256>& byte_tokens_;
  std::vector<Symbol> symbols_;
  // A heap.
  std::vector<Candidate> candidates_;
};

}  // namespace sherd
