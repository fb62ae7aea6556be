#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/tokenizer/added_tokens.h"
#include "worker/tokenizer/merges.h"
#include "worker/tokenizer/splitter.h"
#include "worker/tokenizer/word_cache.h"

namespace sherd {

// What a tokenizer.json of byte-level byte-pair encoding says. ParseTokenizer makes it.
struct TokenizerModel {
  // The bytes of each token by its id; "" where there is none.
  std::vector<std::string> tokens;
  std::array<TokenId, 256> byte_tokens = {};
  MergeTable merges{0};
  // Words that are tokens take no merges (ignore_merges): all tokens by their bytes, else empty.
  absl::flat_hash_map<std::string, TokenId> whole_words;

  // All of them, and those found in a first and in a second pass over the text.
  std::vector<AddedToken> added;
  AddedTokenFinder first_added;
  AddedTokenFinder second_added;

  // Each cuts the pieces of the one before.
  std::vector<SplitPattern> splits;
  // What ByteLevel does to each piece then: put a space before it, and cut once more.
  bool add_prefix_space = false;
  bool gpt2_split = false;

  // What the post-processor puts around a text.
  std::vector<TokenId> before_text;
  std::vector<TokenId> after_text;
};

// A byte-level byte-pair tokenizer. Gives the ids of the reference implementation (Hugging Face
// tokenizers) for all text; bytes that are no UTF-8, which that refuses, are tokenized as they are,
// each as a character that is neither letter, number nor space. Thread-safe.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerModel model) : model_(std::move(model)) {}

  // Ids are below.
  int64_t vocab() const { return static_cast<int64_t>(model_.tokens.size()); }
  // The bytes of a token; "" for an id that has none.
  absl::string_view TokenBytes(TokenId id) const {
    return id < model_.tokens.size() ? absl::string_view(model_.tokens[id]) : "";
  }
  // The bytes of all. Gives back what was encoded, byte for byte, unless the tokenizer adds prefix
  // spaces, or added tokens of the text strip spaces.
  std::string Decode(absl::Span<const TokenId> tokens) const;
  // The added token with this content.
  std::optional<TokenId> FindAdded(absl::string_view content) const;

  // The least place `at` in [from, text.size()), 0 < at, where a text may be cut: the ids of the
  // parts, one after the other, are those of the whole, whatever lies farther away. npos when there
  // is none, as with a tokenizer whose texts cannot be cut at all.
  size_t FindCut(absl::string_view text, size_t from) const;
  // Whether FindCut ever finds a place.
  bool CanCut() const;

  const TokenizerModel& model() const { return model_; }

 private:
  TokenizerModel model_;
};

struct EncodeOptions {
  // Special tokens in a text are text.
  bool special_as_text = false;
};

// Encodes texts, and remembers words. For one thread at a time.
class Encoder {
 public:
  // `tokenizer` must outlive this.
  explicit Encoder(const Tokenizer& tokenizer, EncodeOptions options = {});

  // Appends the tokens of a whole text, without what the post-processor puts around it. The time
  // is O(n log n) in its bytes, of which there are less than 2^32.
  void Append(absl::string_view text, std::vector<TokenId>& tokens);

 private:
  void AppendPieces(absl::string_view text, size_t split, std::vector<TokenId>& tokens);
  void AppendByteLevel(absl::string_view piece, std::vector<TokenId>& tokens);
  void AppendWord(absl::string_view word, std::vector<TokenId>& tokens);
  void AppendNewWord(absl::string_view word, std::vector<TokenId>& tokens);

  const TokenizerModel& model_;
  const EncodeOptions options_;
  WordMerger merger_;
  WordCache cache_;
  std::string prefixed_;
};

}  // namespace sherd
