#include "common/terminal_text.h"

#include "gtest/gtest.h"

namespace sherd {
namespace {

std::string Shown(absl::string_view bytes) {
  TerminalText text;
  std::string shown = text.Add(bytes);
  return shown + text.Finish();
}

TEST(TerminalText, LeavesTextAsItIs) {
  EXPECT_EQ(Shown("a line\n\tand ü, €, 😀\n\n"), "a line\n\tand ü, €, 😀\n\n");
  EXPECT_EQ(Shown(""), "");
}

TEST(TerminalText, SpellsWhatATerminalWouldDo) {
  EXPECT_EQ(Shown("\x1b[2J\a\b\x7f\r"), "\\x1b[2J\\x07\\x08\\x7f\\r");
  EXPECT_EQ(Shown(absl::string_view("a\0b", 3)), "a\\x00b");
  // Terminals take the second half of Latin-1's control characters too, in both spellings.
  EXPECT_EQ(Shown("\xc2\x9b"
                  "2J"),
            "\\u009b2J");
  EXPECT_EQ(Shown("\x9b"
                  "2J"),
            "\\x9b2J");
}

TEST(TerminalText, SpellsBytesThatAreNotUtf8) {
  EXPECT_EQ(Shown("\xff\xfe\xc0\x80"), "\\xff\\xfe\\xc0\\x80");
  EXPECT_EQ(Shown("\xe2\x82x"), "\\xe2\\x82x");
  EXPECT_EQ(Shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(Shown("\xe2\x82"), "\\xe2\\x82");
}

TEST(TerminalText, ACharacterMayComeInPieces) {
  TerminalText text;
  EXPECT_EQ(text.Add("a\xf0\x9f"), "a");
  EXPECT_EQ(text.Add("\x98"), "");
  EXPECT_EQ(text.Add("\x80"), "😀");
  EXPECT_EQ(text.Add("\xe2"), "");
  EXPECT_EQ(text.Add("\n"), "\\xe2\n");
  EXPECT_EQ(text.Finish(), "");
}

}  // namespace
}  // namespace sherd
