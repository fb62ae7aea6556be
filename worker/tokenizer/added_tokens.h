#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "worker/tokenizer/merges.h"

namespace sherd {

// A token that is found in a text as it stands, before the text is cut into pieces.
struct AddedToken {
  TokenId id = 0;
  std::string content;  // not empty
  bool single_word = false;
  bool strip_left = false;
  bool strip_right = false;
  bool normalized = false;
  bool special = false;
};

// Finds added tokens as the reference implementation does: of those that begin leftmost the longest
// one, and none within it. Thread-safe.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Calls, front to back, `on_text` for each stretch (not empty) between tokens and `on_token` for
  // each token. With `special_as_text` special tokens stay text. The spaces that a token strips
  // belong to it.
  void Split(absl::string_view text, bool special_as_text,
             absl::FunctionRef<void(absl::string_view)> on_text,
             absl::FunctionRef<void(TokenId)> on_token) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // A node of the tree of the tokens' bytes; children of one node are siblings in a list.
  struct Node {
    uint8_t byte = 0;
    uint32_t token = kNone;  // index of the one that ends here
    uint32_t first_child = kNone;
    uint32_t next_sibling = kNone;
  };

  uint32_t Child(uint32_t node, uint8_t byte) const;
  // The longest token that begins at `at`; kNone.
  uint32_t LongestAt(absl::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  // By the first byte: the node; kNone.
  std::vector<uint32_t> roots_;
};

}  // namespace sherd
