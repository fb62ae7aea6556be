#include "worker/pack/documents.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/bounded_json.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// A file is searched so far, in windows, for a place to cut it.
constexpr int64_t kMostStretchBytes = 64 << 20;
constexpr int64_t kWindowBytes = 64 << 10;
// A character and the newline after it lie before a cut; another character follows.
constexpr int64_t kBefore = 8;
constexpr int64_t kAfter = 8;
// Of a line of JSON.
constexpr JsonLimits kLineLimits = {.depth = 64, .values = 1 << 20};

absl::StatusOr<std::string> FieldOf(absl::string_view line, const std::string& field) {
  SHERD_ASSIGN_OR_RETURN(nlohmann::json document, ParseBoundedJson(line, kLineLimits));
  if (!document.is_object()) return absl::InvalidArgumentError("it is no JSON object");
  const auto member = document.find(field);
  if (member == document.end()) {
    return absl::InvalidArgumentError(absl::StrCat("it has no field \"", field, "\""));
  }
  if (!member->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("its field \"", field, "\" is no string"));
  }
  return std::move(member->get_ref<std::string&>());
}

}  // namespace

void DocumentTokenizer::Begin(TokenizedPiece& piece) const {
  if (!options_.post_process) return;
  const std::vector<TokenId>& before = tokenizer_.model().before_text;
  piece.tokens.insert(piece.tokens.end(), before.begin(), before.end());
}

void DocumentTokenizer::End(TokenizedPiece& piece) const {
  if (options_.post_process) {
    const std::vector<TokenId>& after = tokenizer_.model().after_text;
    piece.tokens.insert(piece.tokens.end(), after.begin(), after.end());
  }
  if (options_.end_token.has_value()) piece.tokens.push_back(*options_.end_token);
  ++piece.documents;
}

absl::StatusOr<int64_t> DocumentTokenizer::Resolve(const SourceFile& file, int64_t planned) const {
  if (planned == 0 || planned == file.bytes()) return planned;
  // Lines are cut after newlines, of which the first may be the byte before.
  const int64_t before = options_.jsonl ? 1 : std::min(kBefore, planned);
  for (int64_t from = planned; from - planned < kMostStretchBytes;) {
    const int64_t begin = from - before;
    const int64_t end = std::min(file.bytes(), from + kWindowBytes);
    SHERD_ASSIGN_OR_RETURN(const std::string window, file.Read(begin, end));
    size_t at = std::string::npos;
    if (!options_.jsonl) {
      at = tokenizer_.FindCut(window, static_cast<size_t>(before));
    } else if (const size_t newline = window.find('\n'); newline != std::string::npos) {
      at = newline + 1;
    }
    // What follows closely must be whole to be judged.
    const bool last = end == file.bytes();
    const int64_t judged = options_.jsonl || last ? end : end - kAfter;
    if (at != std::string::npos && begin + static_cast<int64_t>(at) <= judged) {
      return begin + static_cast<int64_t>(at);
    }
    if (last) return file.bytes();
    from = judged;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), " has ", options_.jsonl ? "a line" : "text without a place to cut it",
      " of more than ", kMostStretchBytes, " bytes at byte ", planned));
}

absl::StatusOr<TokenizedPiece> DocumentTokenizer::Tokenize(const PlannedPiece& piece) {
  TokenizedPiece tokenized;
  for (const PlannedRange& range : piece) {
    const SourceFile& file = files_[range.file];
    SHERD_ASSIGN_OR_RETURN(const int64_t begin, Resolve(file, range.begin));
    SHERD_ASSIGN_OR_RETURN(const int64_t end, Resolve(file, range.end));
    SHERD_ASSIGN_OR_RETURN(const std::string text, file.Read(begin, end));
    if (options_.jsonl) {
      SHERD_RETURN_IF_ERROR(TokenizeLines(file, begin, text, tokenized));
      continue;
    }
    if (range.begin == 0) Begin(tokenized);
    encoder_.Append(text, tokenized.tokens);
    if (range.end == file.bytes()) End(tokenized);
  }
  return tokenized;
}

absl::Status DocumentTokenizer::TokenizeLines(const SourceFile& file, int64_t begin,
                                              const std::string& lines, TokenizedPiece& piece) {
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const absl::string_view line =
        absl::StripAsciiWhitespace(absl::string_view(lines).substr(at, end - at));
    if (!line.empty()) {
      absl::StatusOr<std::string> text = FieldOf(line, options_.field);
      if (!text.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(file.path(), ": the line at byte ",
                                                       begin + static_cast<int64_t>(at), ": ",
                                                       text.status().message()));
      }
      Begin(piece);
      encoder_.Append(*text, piece.tokens);
      End(piece);
    }
    at = end + 1;
  }
  return absl::OkStatus();
}

}  // namespace sherd
