#include "worker/tokenizer/splitter.h"

#include <algorithm>
#include <utility>

#include "worker/tokenizer/code_points.h"

namespace sherd {
namespace {

constexpr std::pair<absl::string_view, SplitPattern> kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     SplitPattern::kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitPattern::kLlama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitPattern::kLlama3OneNumber},
};

bool IsNewline(char c) { return c == '\r' || c == '\n'; }

// A text, and the reader of its characters.
struct Scanner {
  absl::string_view text;
  const CharacterReader& reader;

  Character At(size_t at) const { return reader.At(text, at); }
  bool IsOtherAt(size_t at) const { return at < text.size() && At(at).IsOther(); }
  bool IsLetterAt(size_t at) const { return at < text.size() && At(at).Is(kLetter); }

  // The end of the run of characters of a class from `at` on, of at most so many.
  size_t RunEnd(size_t at, uint8_t of_class, size_t most = absl::string_view::npos) const {
    for (size_t count = 0; at < text.size() && count < most; ++count) {
      const Character character = At(at);
      if (!character.Is(of_class)) break;
      at += character.bytes;
    }
    return at;
  }
  size_t OtherRunEnd(size_t at) const {
    while (at < text.size()) {
      const Character character = At(at);
      if (!character.IsOther()) break;
      at += character.bytes;
    }
    return at;
  }

  // 's|'t|'re|'ve|'m|'ll|'d in lower case, or in any; `begin` when none is there.
  size_t ContractionEnd(size_t begin, bool any_case) const {
    if (text[begin] != '\'' || begin + 1 >= text.size()) return begin;
    const auto lower = [&](size_t at) {
      const char c = at < text.size() ? text[at] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = lower(begin + 1);
    const char second = lower(begin + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l')) {
      return begin + 3;
    }
    // The long s, ſ, is an s in another case.
    if (any_case && text.substr(begin + 1, 2) == "\xC5\xBF") return begin + 3;
    return begin;
  }

  // \s+(?!\S)|\s+ for the run of spaces [begin, end): all but the last when something follows.
  size_t SpacesEnd(size_t begin, size_t end) const {
    if (end == text.size()) return end;
    const size_t last = end - reader.Before(text, end).bytes;
    return last > begin ? last : end;
  }
};

size_t Gpt2PieceEnd(const Scanner& scanner, size_t begin) {
  const size_t contraction = scanner.ContractionEnd(begin, false);
  if (contraction > begin) return contraction;
  const size_t after_space = begin + (scanner.text[begin] == ' ' ? 1 : 0);
  if (after_space < scanner.text.size()) {
    const Character next = scanner.At(after_space);
    if (next.Is(kLetter)) return scanner.RunEnd(after_space + next.bytes, kLetter);
    if (next.Is(kNumber)) return scanner.RunEnd(after_space + next.bytes, kNumber);
    if (next.IsOther()) return scanner.OtherRunEnd(after_space + next.bytes);
  }
  return scanner.SpacesEnd(begin, scanner.RunEnd(begin, kSpace));
}

size_t Llama3PieceEnd(const Scanner& scanner, size_t begin, size_t most_numbers) {
  const absl::string_view text = scanner.text;
  const size_t contraction = scanner.ContractionEnd(begin, true);
  if (contraction > begin) return contraction;
  const Character first = scanner.At(begin);
  if (first.Is(kLetter)) return scanner.RunEnd(begin + first.bytes, kLetter);
  if (first.Is(kNumber)) return scanner.RunEnd(begin, kNumber, most_numbers);
  if (!IsNewline(text[begin]) && scanner.IsLetterAt(begin + first.bytes)) {
    return scanner.RunEnd(begin + first.bytes, kLetter);
  }
  const size_t after_space = begin + (text[begin] == ' ' ? 1 : 0);
  if (scanner.IsOtherAt(after_space)) {
    size_t end = scanner.OtherRunEnd(after_space);
    while (end < text.size() && IsNewline(text[end])) ++end;
    return end;
  }
  const size_t spaces_end = scanner.RunEnd(begin, kSpace);
  for (size_t end = spaces_end; end > begin; --end) {
    if (IsNewline(text[end - 1])) return end;
  }
  return scanner.SpacesEnd(begin, spaces_end);
}

}  // namespace

std::optional<SplitPattern> FindSplitPattern(absl::string_view regex) {
  const auto* found = std::find_if(std::begin(kPatterns), std::end(kPatterns),
                                   [&](const auto& known) { return known.first == regex; });
  if (found == std::end(kPatterns)) return std::nullopt;
  return found->second;
}

size_t PieceEnd(SplitPattern pattern, absl::string_view text, size_t begin) {
  const Scanner scanner{text, CharacterReader::Get()};
  if (pattern == SplitPattern::kGpt2) return Gpt2PieceEnd(scanner, begin);
  return Llama3PieceEnd(scanner, begin, pattern == SplitPattern::kLlama3 ? 3 : 1);
}

bool IsCut(absl::string_view text, size_t at, bool only_before_spaces) {
  const CharacterReader& reader = CharacterReader::Get();
  if (text[at] == ' ') {
    return at + 1 < text.size() && reader.Before(text, at).Is(kLetter) &&
           reader.At(text, at + 1).Is(kLetter);
  }
  return !only_before_spaces && text[at - 1] == '\n' && at > 1 &&
         !reader.Before(text, at - 1).Is(kSpace) && !reader.At(text, at).Is(kSpace);
}

}  // namespace sherd
