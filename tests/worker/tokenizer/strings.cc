#include "tests/worker/tokenizer/strings.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/splitmix.h"

namespace sherd {
namespace {

constexpr absl::string_view kWords[] = {"the",       "of",      "Don",
                                        "he",        "We",      "I",
                                        "and",       "train",   "ing",
                                        "WORLD",     "naïve",   "über",
                                        "x1",        "foo_bar", "http://a.b/c?d=e",
                                        "wonderful", "hello",   "self.assertEqual(",
                                        "Ångström",  "größer",  "e\314\201te\314\201",
                                        "ﬁn",        "O'Neill", "don't",
                                        "DON'T",     "a.b"};
constexpr absl::string_view kEndings[] = {"s", "t",  "re", "ve", "m",  "ll", "d",  "S",
                                          "T", "RE", "Re", "rE", "VE", "M",  "LL", "lL",
                                          "D", "ſ",  "l",  "r",  "",   "st", "x"};
constexpr absl::string_view kSpaces[] = {" ",
                                         " ",
                                         " ",
                                         "\t",
                                         "\n",
                                         "\r",
                                         "\r\n",
                                         "\n\n",
                                         "\013",
                                         "\014",
                                         "\034",
                                         "\302\205",
                                         "\302\240",
                                         "\341\232\200",
                                         "\341\240\216",
                                         "\342\200\200",
                                         "\342\200\212",
                                         "\342\200\213",
                                         "\342\200\250",
                                         "\342\200\251",
                                         "\342\200\257",
                                         "\342\201\237",
                                         "\343\200\200",
                                         "\357\273\277"};
constexpr absl::string_view kEmoji[] = {
    "\360\237\221\251\342\200\215\360\237\221\251\342\200\215\360\237\221\247\342\200\215\360\237"
    "\221\246",
    "\360\237\221\215\360\237\217\275",
    "\360\237\217\263\357\270\217\342\200\215\360\237\214\210",
    "🇩🇪",
    "\342\235\244\357\270\217",
    "1\357\270\217\342\203\243",
    "\360\237\247\221\360\237\217\277\342\200\215\360\237\232\200",
    "😀",
    "\342\200\215",
    "\357\270\217"};
constexpr absl::string_view kDigits[] = {"0", "1",  "2", "3", "7",  "9", "٣",
                                         "४", "²",  "½", "Ⅷ", "０", "𝟘", "\360\220\265\200",
                                         "௧", "〇", "㊿"};
constexpr absl::string_view kRuns[] = {"a", " ",  "\n", "=",        "0",
                                       "é", "中", "-",  "\t",       "😀",
                                       "'", "A",  "\r", "\302\240", absl::string_view("\0", 1),
                                       "م", "."};
constexpr absl::string_view kMarks[] = {"!", "?", "...", "--", "'", "\"", "(",  ")",
                                        "{", "}", "$",   "€",  "§", "/*", "*/", "\\",
                                        "«", "—", "、",  "。", "·", "_",  "+=", "<|"};
constexpr absl::string_view kSpecial[] = {"<|endoftext|>",
                                          "<|begin_of_text|>",
                                          "<|end_of_text|>",
                                          "<|eot_id|>",
                                          "<|end",
                                          "of",
                                          "text|>",
                                          "<mask>",
                                          "<pad>",
                                          "hello",
                                          "hell",
                                          "<|endoftext|><|endoftext|>",
                                          "@@",
                                          "@",
                                          "[é]",
                                          "x y"};

// First code points and numbers of them.
struct Block {
  uint32_t first;
  uint32_t count;
};
constexpr Block kBlocks[] = {
    {0x80, 0x180},   {0x250, 0x120},   {0x370, 0x190},   {0x590, 0x70},    {0x900, 0x80},
    {0xE00, 0x80},   {0x1100, 0x100},  {0x1E00, 0x200},  {0x2000, 0x300},  {0x3040, 0xC0},
    {0xA7C0, 0x40},  {0xAC00, 0x2BA4}, {0xFB00, 0x250},  {0xFE00, 0x200},  {0x10000, 0x1000},
    {0x10D40, 0x50}, {0x16100, 0x3A},  {0x1D400, 0x400}, {0x1F000, 0xB00}, {0x20000, 0x200},
    {0x2EBF0, 0x40}, {0x31350, 0x40},  {0xE0000, 0x200}, {0x10FFF0, 0x10}};

std::string Utf8(uint32_t code_point) {
  if (code_point >= 0xD800 && code_point < 0xE000) code_point = 0xFFFD;
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  const auto lead = [&](int bits, int shift) {
    return static_cast<char>(bits | code_point >> shift);
  };
  if (code_point < 0x80) return {lead(0, 0)};
  if (code_point < 0x800) return {lead(0xC0, 6), tail(0)};
  if (code_point < 0x10000) return {lead(0xE0, 12), tail(6), tail(0)};
  return {lead(0xF0, 18), tail(12), tail(6), tail(0)};
}

class Draws {
 public:
  Draws(uint64_t seed, uint64_t index) : state_(SplitMix(seed * kSplitMixGamma + index)) {}

  uint32_t Below(uint32_t n) {
    state_ += kSplitMixGamma;
    return static_cast<uint32_t>(SplitMix(state_) % n);
  }
  absl::string_view One(absl::Span<const absl::string_view> choices) {
    return choices[Below(static_cast<uint32_t>(choices.size()))];
  }

 private:
  uint64_t state_;
};

template <typename Draw>
std::string Repeat(uint32_t times, const Draw& draw) {
  std::string text;
  for (uint32_t i = 0; i < times; ++i) absl::StrAppend(&text, draw());
  return text;
}

std::string DrawPart(Draws& draws) {
  switch (draws.Below(16)) {
    case 0:
      return std::string(draws.One(kWords));
    case 1:
      return Repeat(1 + draws.Below(4), [&] { return Utf8(draws.Below(0x110000)); });
    case 2: {
      const absl::string_view one = draws.One(kRuns);
      const uint32_t most = draws.Below(16) == 0 ? 400 : 24;
      return Repeat(1 + draws.Below(most), [&] { return one; });
    }
    case 3:
      return Repeat(1 + draws.Below(5), [&] { return draws.One(kSpaces); });
    case 4:
      return std::string(draws.One(kEmoji));
    case 5:
      return Repeat(1 + draws.Below(8), [&] { return draws.One(kDigits); });
    case 6:
      return Repeat(1 + draws.Below(8), [&] { return Utf8(0x4E00 + draws.Below(20992)); });
    case 7: {
      const Block letters = draws.Below(2) == 0 ? Block{0x5D0, 27} : Block{0x620, 43};
      return Repeat(1 + draws.Below(8),
                    [&] { return Utf8(letters.first + draws.Below(letters.count)); });
    }
    case 8:
      return Repeat(1 + draws.Below(3), [&] {
        return draws.Below(2) == 0 ? Utf8(draws.Below(32)) : Utf8(0x7F + draws.Below(33));
      });
    case 9:
      return std::string(draws.One(kSpecial));
    case 10: {
      const absl::string_view quote = draws.Below(8) != 0 ? "'" : "’";
      return absl::StrCat(quote, draws.One(kEndings));
    }
    case 11:
      return Repeat(1 + draws.Below(3), [&] { return draws.One(kMarks); });
    case 12: {
      const Block block = kBlocks[draws.Below(std::size(kBlocks))];
      return Repeat(1 + draws.Below(6),
                    [&] { return Utf8(block.first + draws.Below(block.count)); });
    }
    case 13:
      return std::string(draws.One(kSpaces));
    case 14:
      return Utf8(draws.Below(0x10000));
    default:
      return absl::StrCat(" ", draws.One(kWords));
  }
}

}  // namespace

std::string DrawnText(uint64_t seed, uint64_t index) {
  Draws draws(seed, index);
  return Repeat(1 + draws.Below(9), [&] { return DrawPart(draws); });
}

}  // namespace sherd
