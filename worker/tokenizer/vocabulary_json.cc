#include "worker/tokenizer/vocabulary_json.h"

#include <algorithm>
#include <bitset>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/tokenizer/byte_alphabet.h"

namespace sherd {
namespace {

// An id costs memory up to the highest.
constexpr TokenId kMostTokenId = (1 << 22) - 1;
// A text is compared with each added token at each of its bytes.
constexpr size_t kMostAddedTokenBytes = 512;
constexpr size_t kMostAddedTokens = 1 << 16;

absl::Status CheckAbsentOrEmpty(const JsonPlace& place) {
  if (place.is_null() || place.value() == "") return absl::OkStatus();
  return place.Error("is not supported: byte-level encodings have none");
}

absl::Status PutToken(const JsonPlace& place, TokenId id, std::string bytes,
                      TokenizerModel& model) {
  if (id >= model.tokens.size()) model.tokens.resize(id + 1);
  if (!model.tokens[id].empty()) return place.Error("is the id of another token");
  model.tokens[id] = std::move(bytes);
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const JsonPlace& place, TokenizerModel& model, Vocabulary& vocabulary) {
  SHERD_RETURN_IF_ERROR(place.CheckObject());
  vocabulary.reserve(place.value().size());
  std::bitset<256> seen;
  for (const auto& [token, value] : place.value().items()) {
    const JsonPlace entry(value, absl::StrCat(place.name(), "[\"", token, "\"]"));
    SHERD_ASSIGN_OR_RETURN(const TokenId id, entry.Number(kMostTokenId));
    if (token.empty()) return entry.Error("belongs to an empty token, which is not supported");
    const std::optional<std::string> bytes = BytesOfSpelling(token);
    if (bytes.has_value() && bytes->size() == 1) {
      const auto byte = static_cast<uint8_t>((*bytes)[0]);
      model.byte_tokens[byte] = id;
      seen.set(byte);
    }
    SHERD_RETURN_IF_ERROR(PutToken(entry, id, bytes.value_or(token), model));
    vocabulary.emplace(token, id);
  }
  if (seen.all()) return absl::OkStatus();
  size_t byte = 0;
  while (seen.test(byte)) ++byte;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has no token for the byte 0x%02X; a vocabulary without all 256 bytes is "
                      "not supported",
                      place.name(), byte));
}

// The two parts of a merge: "a b" or ["a", "b"].
absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(const JsonPlace& place) {
  if (place.value().is_array()) {
    if (place.value().size() != 2) return place.Error("must have two parts");
    SHERD_ASSIGN_OR_RETURN(std::string left, place.Element(0).String());
    SHERD_ASSIGN_OR_RETURN(std::string right, place.Element(1).String());
    return std::pair(std::move(left), std::move(right));
  }
  SHERD_ASSIGN_OR_RETURN(const std::string merge, place.String());
  std::vector<std::string> parts = absl::StrSplit(merge, ' ');
  if (parts.size() != 2) return place.Error("must have two parts with one space between them");
  return std::pair(std::move(parts[0]), std::move(parts[1]));
}

absl::Status ReadMerges(const JsonPlace& place, const Vocabulary& vocabulary,
                        TokenizerModel& model) {
  SHERD_ASSIGN_OR_RETURN(const size_t size, place.Size());
  model.merges = MergeTable(size);
  const auto id_of = [&](const JsonPlace& merge,
                         const std::string& token) -> absl::StatusOr<TokenId> {
    const auto found = vocabulary.find(token);
    if (found != vocabulary.end()) return found->second;
    return merge.Error(absl::StrCat("needs the token \"", token, "\", which model.vocab lacks"));
  };
  const bool pairs = size > 0 && place.Element(0).value().is_array();
  uint32_t rank = 0;
  for (size_t i = 0; i < size; ++i) {
    const JsonPlace merge = place.Element(i);
    if (merge.value().is_array() != pairs) return merge.Error("must be written as the first one");
    // The first line of the older merges.txt.
    if (!pairs && merge.value().is_string() &&
        absl::StartsWith(merge.value().get_ref<const std::string&>(), "#version")) {
      continue;
    }
    SHERD_ASSIGN_OR_RETURN(const auto parts, ReadMerge(merge));
    SHERD_ASSIGN_OR_RETURN(const TokenId left, id_of(merge, parts.first));
    SHERD_ASSIGN_OR_RETURN(const TokenId right, id_of(merge, parts.second));
    SHERD_ASSIGN_OR_RETURN(const TokenId merged, id_of(merge, parts.first + parts.second));
    if (!model.merges.Add(left, right, {rank++, merged})) {
      return merge.Error("is there a second time");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AddedToken> ReadAddedToken(const JsonPlace& place) {
  AddedToken token;
  SHERD_RETURN_IF_ERROR(place.CheckObject());
  SHERD_ASSIGN_OR_RETURN(token.id, place.Member("id").Number(kMostTokenId));
  SHERD_ASSIGN_OR_RETURN(token.content, place.Member("content").String());
  if (token.content.empty() || token.content.size() > kMostAddedTokenBytes) {
    return place.Member("content").Error(
        absl::StrCat("must have 1 to ", kMostAddedTokenBytes, " bytes"));
  }
  SHERD_ASSIGN_OR_RETURN(token.single_word, place.Member("single_word").Bool());
  SHERD_ASSIGN_OR_RETURN(token.strip_left, place.Member("lstrip").Bool());
  SHERD_ASSIGN_OR_RETURN(token.strip_right, place.Member("rstrip").Bool());
  SHERD_ASSIGN_OR_RETURN(token.normalized, place.Member("normalized").Bool());
  SHERD_ASSIGN_OR_RETURN(token.special, place.Member("special").Bool());
  return token;
}

}  // namespace

absl::Status ReadByteLevelModel(const JsonPlace& place, TokenizerModel& model,
                                Vocabulary& vocabulary) {
  SHERD_RETURN_IF_ERROR(place.CheckObject());
  const JsonPlace type = place.Member("type");
  if (!type.is_null() && type.value() != "BPE") return type.Error("must be BPE to be supported");
  const JsonPlace dropout = place.Member("dropout");
  if (!dropout.is_null() && dropout.value() != 0) {
    return dropout.Error("is not supported: ids would be drawn by chance");
  }
  SHERD_RETURN_IF_ERROR(CheckAbsentOrEmpty(place.Member("continuing_subword_prefix")));
  SHERD_RETURN_IF_ERROR(CheckAbsentOrEmpty(place.Member("end_of_word_suffix")));
  SHERD_RETURN_IF_ERROR(ReadVocabulary(place.Member("vocab"), model, vocabulary));
  SHERD_RETURN_IF_ERROR(ReadMerges(place.Member("merges"), vocabulary, model));
  SHERD_ASSIGN_OR_RETURN(const bool whole_words, place.Member("ignore_merges").BoolOr(false));
  if (!whole_words) return absl::OkStatus();
  for (const auto& [token, id] : vocabulary) {
    const std::optional<std::string> bytes = BytesOfSpelling(token);
    if (bytes.has_value()) model.whole_words.emplace(*bytes, id);
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const JsonPlace& place, const Vocabulary& vocabulary,
                             TokenizerModel& model) {
  if (place.is_null()) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(const size_t size, place.Size());
  if (size > kMostAddedTokens) {
    return place.Error(absl::StrCat("must have at most ", kMostAddedTokens, " elements"));
  }
  // The reference gives them ids of its own, whatever the file says: those after the vocabulary.
  auto next = static_cast<TokenId>(vocabulary.size());
  Vocabulary added;
  for (size_t i = 0; i < size; ++i) {
    const JsonPlace entry = place.Element(i);
    SHERD_ASSIGN_OR_RETURN(const AddedToken token, ReadAddedToken(entry));
    const JsonPlace content = entry.Member("content");
    const JsonPlace id = entry.Member("id");
    if (!added.emplace(token.content, token.id).second) {
      return content.Error("is there a second time");
    }
    const auto known = vocabulary.find(token.content);
    const TokenId expected = known != vocabulary.end() ? known->second : next++;
    if (token.id != expected) {
      return id.Error(absl::StrCat(
          "must be ", expected, ", as the reference implementation has it ",
          known != vocabulary.end() ? "from model.vocab" : "(the next after model.vocab)"));
    }
    if (known != vocabulary.end()) {
      model.tokens[token.id] = token.content;
    } else {
      SHERD_RETURN_IF_ERROR(PutToken(id, token.id, token.content, model));
    }
    model.added.push_back(token);
  }
  std::vector<AddedToken> first, second;
  for (const AddedToken& token : model.added) (token.normalized ? second : first).push_back(token);
  if (!first.empty()) model.first_added = AddedTokenFinder(std::move(first));
  if (!second.empty()) model.second_added = AddedTokenFinder(std::move(second));
  return absl::OkStatus();
}

}  // namespace sherd
