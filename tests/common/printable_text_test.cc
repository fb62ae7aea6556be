#include "common/printable_text.h"

#include <string>

#include "common/utf8.h"
#include "gtest/gtest.h"

namespace sherd {
namespace {

TEST(PrintableText, LeavesReadableTextAlone) {
  for (const char* text : {"", "a", "no memory: 3 GiB wanted", "größer ≥ 3 µs", "日本語"}) {
    EXPECT_EQ(PrintableText(text, 100), text);
  }
}

TEST(PrintableText, SpellsOutWhatATerminalWouldObey) {
  EXPECT_EQ(PrintableText(std::string("a\x1b[31m\a\r\nb\0c\x7f\tü", 16), 100),
            "a\\x1b[31m\\x07\\r\\nb\\x00c\\x7f ü");
  // CSI as one character.
  EXPECT_EQ(PrintableText("\xC2\x9B[2J", 100), "\\u009b[2J");
  EXPECT_EQ(PrintableText("line\n", 100), "line");
}

TEST(PrintableText, CutsWithAMarkAtACharacter) {
  EXPECT_EQ(PrintableText(std::string(100, 'x'), 100), std::string(100, 'x'));
  EXPECT_EQ(PrintableText(std::string(4'000'000, 'x'), 100),
            std::string(52, 'x') + "… (3999948 more bytes left out)");
  for (size_t most = 64; most < 80; ++most) {
    std::string wide;
    for (int i = 0; i < 100; ++i) wide += "日\n";
    const std::string cut = PrintableText(wide, most);
    EXPECT_LE(cut.size(), most);
    EXPECT_FALSE(FindInvalidUtf8(cut)) << cut;
  }
}

}  // namespace
}  // namespace sherd
