#include "worker/tokenizer/tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/tokenizer/code_points.h"

namespace sherd {
namespace {

bool HoldsSpace(absl::string_view text) {
  const CharacterReader& reader = CharacterReader::Get();
  for (size_t at = 0; at < text.size(); at += reader.At(text, at).bytes) {
    if (reader.At(text, at).Is(kSpace)) return true;
  }
  return false;
}

}  // namespace

std::string Tokenizer::Decode(absl::Span<const TokenId> tokens) const {
  std::string text;
  for (const TokenId token : tokens) absl::StrAppend(&text, TokenBytes(token));
  return text;
}

std::optional<TokenId> Tokenizer::FindAdded(absl::string_view content) const {
  for (const AddedToken& token : model_.added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

bool Tokenizer::CanCut() const {
  // Cuts lie at spaces, so that no added token may have to do with any.
  return (model_.gpt2_split || !model_.splits.empty()) &&
         std::none_of(model_.added.begin(), model_.added.end(), [](const AddedToken& token) {
           return token.strip_left || token.strip_right || HoldsSpace(token.content);
         });
}

size_t Tokenizer::FindCut(absl::string_view text, size_t from) const {
  if (!CanCut()) return absl::string_view::npos;
  for (size_t at = std::max<size_t>(from, 1); at < text.size(); ++at) {
    // A part that begins with a space gets no other one.
    if (IsCut(text, at, model_.add_prefix_space)) return at;
  }
  return absl::string_view::npos;
}

Encoder::Encoder(const Tokenizer& tokenizer, EncodeOptions options)
    : model_(tokenizer.model()), options_(options), merger_(model_.merges, model_.byte_tokens) {}

void Encoder::Append(absl::string_view text, std::vector<TokenId>& tokens) {
  const auto add = [&tokens](TokenId token) { tokens.push_back(token); };
  model_.first_added.Split(
      text, options_.special_as_text,
      [&](absl::string_view stretch) {
        model_.second_added.Split(
            stretch, options_.special_as_text,
            [&](absl::string_view part) { AppendPieces(part, 0, tokens); }, add);
      },
      add);
}

void Encoder::AppendPieces(absl::string_view text, size_t split, std::vector<TokenId>& tokens) {
  if (split == model_.splits.size()) {
    AppendByteLevel(text, tokens);
    return;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = PieceEnd(model_.splits[split], text, begin);
    AppendPieces(text.substr(begin, end - begin), split + 1, tokens);
    begin = end;
  }
}

void Encoder::AppendByteLevel(absl::string_view piece, std::vector<TokenId>& tokens) {
  if (model_.add_prefix_space && piece[0] != ' ') {
    prefixed_.assign(1, ' ').append(piece.data(), piece.size());
    piece = prefixed_;
  }
  if (!model_.gpt2_split) {
    AppendWord(piece, tokens);
    return;
  }
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = PieceEnd(SplitPattern::kGpt2, piece, begin);
    AppendWord(piece.substr(begin, end - begin), tokens);
    begin = end;
  }
}

void Encoder::AppendWord(absl::string_view word, std::vector<TokenId>& tokens) {
  if (word.size() == 1) {
    // Nothing shorter than a byte to merge.
    tokens.push_back(model_.byte_tokens[static_cast<uint8_t>(word[0])]);
    return;
  }
  if (word.size() > WordCache::kMostWordBytes) {
    AppendNewWord(word, tokens);
    return;
  }
  const absl::Span<const TokenId> known = cache_.Find(word);
  if (!known.empty()) {
    tokens.insert(tokens.end(), known.begin(), known.end());
    return;
  }
  const size_t before = tokens.size();
  AppendNewWord(word, tokens);
  const auto found = absl::MakeConstSpan(tokens).subspan(before);
  if (found.size() <= WordCache::kMostTokens) cache_.Put(found);
}

void Encoder::AppendNewWord(absl::string_view word, std::vector<TokenId>& tokens) {
  if (!model_.whole_words.empty()) {
    const auto whole = model_.whole_words.find(word);
    if (whole != model_.whole_words.end()) {
      tokens.push_back(whole->second);
      return;
    }
  }
  merger_.Append(word, tokens);
}

}  // namespace sherd
