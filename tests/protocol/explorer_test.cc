#include "tests/protocol/explorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sherd::protocol {
namespace {

// A walk from 0 to 10 in steps of one or two, from where a fault leads to 20.
struct Walk {
  int hole = -1;         // nothing leads on from here
  int wrong = -1;        // must not be reached
  bool rescued = false;  // a fault leads out of the hole

  int Initial() const { return 0; }
  void Next(int at, Moves<int>& moves) const {
    if (at == hole) {
      if (rescued) moves.Add(10, true, [] { return "rescued"; });
      return;
    }
    for (const int step : {1, 2}) {
      moves.Add(at + step, false, [&] { return absl::StrCat("to ", at + step); });
    }
  }
  std::string Violation(int at) const { return at == wrong ? "it is wrong" : ""; }
  bool Ended(int at) const { return at >= 10; }
  std::string Show(int at) const { return absl::StrCat("at ", at); }
};

TEST(Explorer, VisitsEveryStateOnce) {
  const Walk walk;
  const Findings findings = Explorer<Walk, int>(walk).Run();
  EXPECT_EQ(findings.violation, "");
  EXPECT_EQ(findings.states, 12);
  EXPECT_EQ(findings.moves, 20);
}

TEST(Explorer, TellsTheShortestWayToAWrongState) {
  const Walk walk{.wrong = 5};
  const Findings findings = Explorer<Walk, int>(walk).Run();
  EXPECT_EQ(findings.violation, "it is wrong");
  EXPECT_EQ(findings.trace, "1. to 1\n2. to 3\n3. to 5\nat 5");
}

TEST(Explorer, FindsAStateThatNothingLeadsOnFrom) {
  const Walk walk{.hole = 4};
  const Findings findings = Explorer<Walk, int>(walk).Run();
  EXPECT_EQ(findings.violation, "from here on nothing leads to an end");
  EXPECT_EQ(findings.trace, "1. to 2\n2. to 4\nat 4");
}

TEST(Explorer, AFaultIsNoWayOut) {
  const Walk walk{.hole = 4, .rescued = true};
  const Findings findings = Explorer<Walk, int>(walk).Run();
  EXPECT_EQ(findings.trace, "1. to 2\n2. to 4\nat 4");
}

}  // namespace
}  // namespace sherd::protocol
