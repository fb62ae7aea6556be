#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/tokenizer/tokenizer.h"

namespace sherd {

// What ids mean: bytes, or what a tokenizer.json says. Thread-safe.
class TextCodec {
 public:
  // Each byte is a token; 0 ends a text.
  TextCodec() = default;
  // `tokenizer` is "bytes" or the path of a tokenizer.json below `root` ("": anywhere). Errors name
  // the file.
  static absl::StatusOr<TextCodec> Load(const std::string& tokenizer, const std::string& root = "");

  bool is_bytes() const { return tokenizer_ == nullptr; }
  // Ids are below.
  int64_t vocab() const;
  // For one thread at a time. Appends the tokens of a text, without any around it.
  class Writer {
   public:
    // `codec` must outlive this.
    explicit Writer(const TextCodec& codec);
    void Append(absl::string_view text, std::vector<TokenId>& ids);

   private:
    std::optional<Encoder> encoder_;
  };
  std::vector<TokenId> Encode(absl::string_view text) const;

  // The bytes of an id; "" for one that has none.
  std::string Decode(TokenId id) const;
  // How many bytes of text an id stands for: none for special tokens.
  int64_t TextBytes(TokenId id) const;
  // What the post-processor puts before a text.
  std::vector<TokenId> Start() const;
  // What ends a text: <|endoftext|> or <|end_of_text|>, if the tokenizer has one of them.
  std::optional<TokenId> End() const;

 private:
  explicit TextCodec(Tokenizer tokenizer);

  // Null: bytes.
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<bool> special_;
};

}  // namespace sherd
