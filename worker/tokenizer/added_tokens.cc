#include "worker/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "worker/tokenizer/code_points.h"

namespace sherd {
namespace {

bool IsSingleWord(absl::string_view text, size_t begin, size_t end) {
  const CharacterReader& reader = CharacterReader::Get();
  return (begin == 0 || !reader.Before(text, begin).Is(kWord)) &&
         (end == text.size() || !reader.At(text, end).Is(kWord));
}

// Of the spaces before `end`, down to `least`.
size_t SpacesBegin(absl::string_view text, size_t least, size_t end) {
  while (end > least) {
    const Character character = CharacterReader::Get().Before(text, end);
    if (!character.Is(kSpace)) break;
    end -= character.bytes;
  }
  return std::max(least, end);
}

size_t SpacesEnd(absl::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Character character = CharacterReader::Get().At(text, begin);
    if (!character.Is(kSpace)) break;
    begin += character.bytes;
  }
  return begin;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), roots_(256, kNone) {
  for (uint32_t token = 0; token < tokens_.size(); ++token) {
    uint32_t node = kNone;
    for (const char c : tokens_[token].content) {
      const auto byte = static_cast<uint8_t>(c);
      uint32_t child = node == kNone ? roots_[byte] : Child(node, byte);
      if (child == kNone) {
        child = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({byte});
        if (node == kNone) {
          roots_[byte] = child;
        } else {
          nodes_[child].next_sibling = std::exchange(nodes_[node].first_child, child);
        }
      }
      node = child;
    }
    nodes_[node].token = token;
  }
}

uint32_t AddedTokenFinder::Child(uint32_t node, uint8_t byte) const {
  uint32_t child = nodes_[node].first_child;
  while (child != kNone && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

uint32_t AddedTokenFinder::LongestAt(absl::string_view text, size_t at) const {
  uint32_t longest = kNone;
  for (uint32_t node = roots_[static_cast<uint8_t>(text[at])]; node != kNone;
       node = ++at < text.size() ? Child(node, static_cast<uint8_t>(text[at])) : kNone) {
    if (nodes_[node].token != kNone) longest = nodes_[node].token;
  }
  return longest;
}

void AddedTokenFinder::Split(absl::string_view text, bool special_as_text,
                             absl::FunctionRef<void(absl::string_view)> on_text,
                             absl::FunctionRef<void(TokenId)> on_token) const {
  // What lies before it has been told.
  size_t told = 0;
  // Where spaces end that were stripped.
  size_t stripped = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const uint32_t found = LongestAt(text, at);
    if (found == kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found];
    size_t begin = at;
    size_t end = at + token.content.size();
    at = end;
    if (special_as_text && token.special) continue;
    if (token.single_word && !IsSingleWord(text, begin, end)) continue;
    if (token.strip_left) begin = SpacesBegin(text, told, begin);
    if (token.strip_right) end = stripped = end < stripped ? stripped : SpacesEnd(text, end);
    if (told < begin) on_text(text.substr(told, begin - told));
    on_token(token.id);
    // A token within spaces that the one before has stripped leads back: so does the reference.
    told = end;
  }
  if (told < text.size()) on_text(text.substr(told));
}

}  // namespace sherd
