#include "worker/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/tokenizer/strings.h"
#include "tests/worker/tokenizer/tokenizers.h"

namespace sherd {
namespace {

using testing::ElementsAre;

std::vector<TokenId> Encode(const Tokenizer& tokenizer, absl::string_view text,
                            EncodeOptions options = {}) {
  std::vector<TokenId> ids;
  Encoder(tokenizer, options).Append(text, ids);
  return ids;
}

std::vector<std::string> Pieces(SplitPattern pattern, absl::string_view text) {
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = PieceEnd(pattern, text, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST(PieceEnd, CutsAsGpt2Does) {
  const auto pieces = [](absl::string_view text) { return Pieces(SplitPattern::kGpt2, text); };
  EXPECT_THAT(pieces("I'll DON'T 12345!?  x"),
              ElementsAre("I", "'ll", " DON", "'", "T", " 12345", "!?", " ", " x"));
  EXPECT_THAT(pieces("a\n\nb \n c  "), ElementsAre("a", "\n", "\n", "b", " \n", " c", "  "));
  EXPECT_THAT(pieces("x'"), ElementsAre("x", "'"));
  EXPECT_THAT(pieces("' 'r"), ElementsAre("'", " '", "r"));
  // U+180E was a space once, U+3000 is one.
  EXPECT_THAT(pieces("中文\u3000٣½\u180E"), ElementsAre("中文", "\u3000", "٣½", "\u180E"));
}

TEST(PieceEnd, CutsAsLlama3Does) {
  const auto pieces = [](absl::string_view text) { return Pieces(SplitPattern::kLlama3, text); };
  EXPECT_THAT(pieces("I'LL don't 12345!?\n\n  x"),
              ElementsAre("I", "'LL", " don", "'t", " ", "123", "45", "!?\n\n", " ", " x"));
  EXPECT_THAT(pieces(" \n \n  \r\n\t y"), ElementsAre(" \n \n  \r\n", "\t", " y"));
  EXPECT_THAT(pieces("it'ſ (a)\tb"), ElementsAre("it", "'ſ", " (", "a", ")", "\tb"));
  EXPECT_THAT(Pieces(SplitPattern::kLlama3OneNumber, " 12"), ElementsAre(" ", "1", "2"));
}

TEST(Encoder, BytesThatAreNoUtf8ArePiecesOfTheirOwnKind) {
  EXPECT_THAT(Pieces(SplitPattern::kGpt2, "a\xFF\xC3 b\xE4\xB8"),
              ElementsAre("a", "\xFF\xC3", " b", "\xE4\xB8"));
  // A surrogate, more bytes than need be, beyond Unicode.
  EXPECT_THAT(Pieces(SplitPattern::kGpt2, "a\xED\xA0\x80z\xC1\x81z\xF4\x90\x80\x80"),
              ElementsAre("a", "\xED\xA0\x80", "z", "\xC1\x81", "z", "\xF4\x90\x80\x80"));
}

TEST(Tokenizer, GivesBackEveryText) {
  for (const std::string name : {"gpt2", "llama3"}) {
    const Tokenizer tokenizer = GoldenTokenizer(name);
    Encoder encoder(tokenizer);
    std::vector<TokenId> ids;
    for (uint64_t i = 0; i < 10000; ++i) {
      const std::string text = DrawnText(3, i);
      ids.clear();
      encoder.Append(text, ids);
      ASSERT_EQ(tokenizer.Decode(ids), text) << name << " " << i;
    }
  }
}

TEST(Tokenizer, GivesBackAllBytes) {
  std::mt19937_64 generator(1);
  for (const std::string name : {"gpt2", "llama3"}) {
    const Tokenizer tokenizer = GoldenTokenizer(name);
    Encoder encoder(tokenizer);
    std::vector<TokenId> ids;
    for (int i = 0; i < 10000; ++i) {
      std::string text;
      const size_t size = generator() % 100;
      // Any bytes, few kinds of bytes, or text with single bytes changed.
      const int kind = i % 3;
      if (kind == 2) text = DrawnText(4, static_cast<uint64_t>(i));
      while (text.size() < size) {
        text += kind == 0 ? static_cast<char>(generator())
                          : "\xC3\xA9 a\xE4\xB8\n\xF0"[generator() % 8];
      }
      if (kind == 2) text[generator() % text.size()] = static_cast<char>(generator());
      ids.clear();
      encoder.Append(text, ids);
      ASSERT_EQ(tokenizer.Decode(ids), text) << name << " " << testing::PrintToString(text);
    }
  }
}

TEST(Tokenizer, LongRunsTakeATimeInProportion) {
  for (const std::string name : {"gpt2", "llama3"}) {
    const Tokenizer tokenizer = GoldenTokenizer(name);
    for (const absl::string_view one :
         {"a", " ", "\n", "=", "1", "\xFF", "中", " \n", "'", "<", "ab"}) {
      std::string text;
      const size_t bytes = one == "a" || one == " " ? 1 << 20 : 1 << 17;
      while (text.size() < bytes) absl::StrAppend(&text, one);
      const auto start = std::chrono::steady_clock::now();
      const std::vector<TokenId> ids = Encode(tokenizer, text);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      EXPECT_EQ(tokenizer.Decode(ids), text);
      // Quadratic time would be hours; this leaves room for sanitizers and other load.
      EXPECT_LT(took.count(), 30) << name << " " << testing::PrintToString(one);
    }
  }
}

TEST(WordMerger, LongAndShortWordsMergeAlike) {
  // Of runs, whose merges compete most, one word and the same word beyond the short one's limit.
  const Tokenizer tokenizer = GoldenTokenizer("gpt2");
  const TokenizerModel& model = tokenizer.model();
  WordMerger merger(model.merges, model.byte_tokens);
  // Merges nothing with what is before it.
  const std::string wall(1, '\x01');
  std::mt19937_64 generator(2);
  for (int i = 0; i < 20000; ++i) {
    std::string word;
    const size_t size = 1 + generator() % 20;
    while (word.size() < size) word += "aeothn s="[generator() % 9];
    std::vector<TokenId> alone, within;
    merger.Append(word, alone);
    merger.Append(word + std::string(40, '\x01'), within);
    ASSERT_GE(within.size(), alone.size());
    within.resize(alone.size());
    ASSERT_EQ(within, alone) << word;
  }
}

TEST(Encoder, WordsFromTheCacheAreTheWords) {
  const Tokenizer tokenizer = GoldenTokenizer("llama3");
  Encoder encoder(tokenizer);
  const std::vector<std::string> words = {std::string("a\0", 2), std::string("a\0\0", 3), "a!",
                                          std::string(23, '-'),  std::string(24, '-'),    " the"};
  for (int round = 0; round < 2; ++round) {
    for (const std::string& word : words) {
      std::vector<TokenId> ids;
      encoder.Append(word, ids);
      EXPECT_EQ(ids, Encode(tokenizer, word)) << testing::PrintToString(word);
    }
  }
}

TEST(Encoder, SpecialTokensAreTextOnRequest) {
  const Tokenizer tokenizer = GoldenTokenizer("llama3");
  const TokenId end = *tokenizer.FindAdded("<|end_of_text|>");
  EXPECT_THAT(Encode(tokenizer, "<|end_of_text|>"), ElementsAre(end));
  const auto as_text = Encode(tokenizer, "<|end_of_text|>", {.special_as_text = true});
  EXPECT_GT(as_text.size(), 1u);
  EXPECT_EQ(tokenizer.Decode(as_text), "<|end_of_text|>");
  EXPECT_EQ(tokenizer.FindAdded("nothing"), std::nullopt);
}

TEST(Tokenizer, ATextMayBeCutWhereItSays) {
  for (const std::string name : {"gpt2", "llama3"}) {
    const Tokenizer tokenizer = GoldenTokenizer(name);
    Encoder encoder(tokenizer);
    int cuts = 0;
    for (uint64_t i = 0; i < 4000; ++i) {
      const std::string text = DrawnText(5, i) + "\n" + DrawnText(6, i) + " the end\nof it ";
      const std::vector<TokenId> whole = Encode(tokenizer, text);
      for (size_t at = tokenizer.FindCut(text, 0); at != absl::string_view::npos;
           at = tokenizer.FindCut(text, at + 1)) {
        std::vector<TokenId> parts;
        encoder.Append(absl::string_view(text).substr(0, at), parts);
        encoder.Append(absl::string_view(text).substr(at), parts);
        ASSERT_EQ(parts, whole) << name << " " << at << " of " << testing::PrintToString(text);
        ++cuts;
      }
    }
    EXPECT_GT(cuts, 10000);
  }
}

TEST(Tokenizer, TokensThatTakeSpacesAllowNoCuts) {
  const Tokenizer tokenizer = GoldenTokenizer("flags");
  EXPECT_FALSE(tokenizer.CanCut());
  EXPECT_EQ(tokenizer.FindCut("the end\nof it", 0), absl::string_view::npos);
}

TEST(Tokenizer, PrefixSpacesAllowCutsBeforeSpacesOnly) {
  nlohmann::json document = GoldenTokenizerJson("gpt2");
  document["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = ParseTokenizer(document.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->FindCut("a\nb c", 0), 3u);
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "a\nb")), " a\nb");
}

}  // namespace
}  // namespace sherd
