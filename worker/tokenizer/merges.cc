#include "worker/tokenizer/merges.h"

#include <algorithm>

namespace sherd {

MergeTable::MergeTable(size_t merges) {
  int bits = 4;
  while ((size_t{1} << bits) / 3 * 2 < merges) ++bits;
  mask_ = (size_t{1} << bits) - 1;
  shift_ = 64 - bits;
  slots_.resize(mask_ + 1);
}

bool MergeTable::Add(TokenId left, TokenId right, Merge merge) {
  const uint64_t key = KeyOf(left, right);
  size_t slot = SlotOf(key);
  for (; slots_[slot].key != kEmpty; slot = (slot + 1) & mask_) {
    if (slots_[slot].key == key) return false;
  }
  slots_[slot] = {key, merge};
  return true;
}

void WordMerger::Append(absl::string_view word, std::vector<TokenId>& tokens) {
  if (word.size() <= kShortBytes) {
    AppendShort(word, tokens);
  } else {
    AppendLong(word, tokens);
  }
}

void WordMerger::AppendShort(absl::string_view word, std::vector<TokenId>& tokens) const {
  constexpr Merge kNoMerge = {kNone, 0};
  TokenId parts[kShortBytes];
  // Of each part and the one after it.
  Merge merges[kShortBytes];
  const auto merge_of = [&](TokenId left, TokenId right) {
    const Merge* merge = merges_.Find(left, right);
    return merge != nullptr ? *merge : kNoMerge;
  };
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) parts[i] = byte_tokens_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(parts[i], parts[i + 1]);
  while (count > 1) {
    size_t least = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[least].rank) least = i;
    }
    if (merges[least].rank == kNone) break;
    parts[least] = merges[least].merged;
    std::copy(parts + least + 2, parts + count, parts + least + 1);
    std::copy(merges + least + 1, merges + count - 1, merges + least);
    --count;
    if (least > 0) merges[least - 1] = merge_of(parts[least - 1], parts[least]);
    if (least + 1 < count) merges[least] = merge_of(parts[least], parts[least + 1]);
  }
  tokens.insert(tokens.end(), parts, parts + count);
}

namespace {

// Of a heap whose top has the least rank, and of equals the leftmost position.
constexpr auto kLater = [](const auto& a, const auto& b) {
  return a.merge.rank != b.merge.rank ? a.merge.rank > b.merge.rank : a.position > b.position;
};

}  // namespace

void WordMerger::AddCandidate(uint32_t position) {
  const Symbol& symbol = symbols_[position];
  if (symbol.next == kNone) return;
  const Merge* merge = merges_.Find(symbol.token, symbols_[symbol.next].token);
  if (merge != nullptr) candidates_.push_back({*merge, position});
}

void WordMerger::AppendLong(absl::string_view word, std::vector<TokenId>& tokens) {
  symbols_.clear();
  candidates_.clear();
  const auto count = static_cast<uint32_t>(word.size());
  for (uint32_t i = 0; i < count; ++i) {
    symbols_.push_back({byte_tokens_[static_cast<uint8_t>(word[i])], i > 0 ? i - 1 : kNone,
                        i + 1 < count ? i + 1 : kNone, false});
  }
  for (uint32_t i = 0; i < count; ++i) AddCandidate(i);
  std::make_heap(candidates_.begin(), candidates_.end(), kLater);
  const auto add = [&](uint32_t position) {
    const size_t before = candidates_.size();
    AddCandidate(position);
    if (candidates_.size() > before) {
      std::push_heap(candidates_.begin(), candidates_.end(), kLater);
    }
  };
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end(), kLater);
    const auto [merge, position] = candidates_.back();
    candidates_.pop_back();
    Symbol& left = symbols_[position];
    if (left.gone || left.next == kNone) continue;
    Symbol& right = symbols_[left.next];
    // One of the two may have merged with another meanwhile.
    const Merge* present = merges_.Find(left.token, right.token);
    if (present == nullptr || present->merged != merge.merged) continue;
    left.token = merge.merged;
    left.next = right.next;
    right.gone = true;
    if (left.next != kNone) symbols_[left.next].previous = position;
    if (left.previous != kNone) add(left.previous);
    add(position);
  }
  for (uint32_t i = 0; i != kNone; i = symbols_[i].next) tokens.push_back(symbols_[i].token);
  // What one enormous word took is given back.
  constexpr size_t kKept = 1 << 16;
  if (symbols_.capacity() > kKept) std::vector<Symbol>().swap(symbols_);
  if (candidates_.capacity() > kKept) std::vector<Candidate>().swap(candidates_);
}

}  // namespace sherd
