// Manual pages and completions say what the command line is.

#include "common/command_docs.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CommandDocs : public testing::Test {
 protected:
  CommandDocs() {
    CLI::App& run = *app_.add_subcommand("run", "Train here");
    run.add_option("--workers", workers_, "Worker processes")->required()->option_text("N");
    run.add_option("JOB.yaml", job_, "The job file")->required();
    run.add_flag("--dry", dry_, "Don't; say what would be");
    run.add_option("--secret", hidden_, "Of ours")->group("");
    CLI::App& list = *app_.add_subcommand("list", "List the jobs");
    list.add_option("-o,--output", format_, "table or json")->envname("TOOL_OUTPUT");
  }
  // What a shell's function offers for a line whose last word is being completed.
  std::string Offered(const std::string& script, const std::string& words, int count) {
    const std::string path = directory_.Write("completion", script);
    const std::string command =
        absl::StrCat("bash -c '. ", path, "; COMP_WORDS=(", words, "); COMP_CWORD=", count,
                     "; _tool_complete; echo \"${COMPREPLY[*]}\"' 2>&1");
    FILE* pipe = popen(command.c_str(), "r");
    std::string said(4096, '\0');
    said.resize(std::fread(said.data(), 1, said.size(), pipe));
    EXPECT_EQ(pclose(pipe), 0) << said;
    return said;
  }

  TemporaryDirectory directory_;
  CLI::App app_{"Does what it says.", "tool"};
  int workers_ = 0;
  bool dry_ = false;
  std::string job_, hidden_, format_;
};

TEST_F(CommandDocs, AManualPageNamesCommandsOptionsAndVariables) {
  const std::string page = ManualPage(app_);
  EXPECT_THAT(page, HasSubstr(".TH TOOL 1 \"\" \"sherd "));
  EXPECT_THAT(page, HasSubstr("tool \\- does what it says\n"));
  EXPECT_THAT(page, HasSubstr(".SS run\nTrain here.\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-workers\\fR \\fIN\\fR\nWorker processes (required).\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-dry\\fR\nDon't; say what would be.\n"));
  EXPECT_THAT(page, HasSubstr("\\fIJOB.yaml\\fR\n"));
  EXPECT_THAT(page, HasSubstr(".SH ENVIRONMENT\n.TP\n\\fBTOOL_OUTPUT\\fR\nStands for "
                              "\\-\\-output.\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
}

TEST_F(CommandDocs, ThePageOfACommandOfItsOwnIsFoundByItsWords) {
  CLI::App own("Lists what is there.", "tool list");
  own.add_option("DIR", format_, "Where")->required()->option_text(" ");
  AddManual(own);
  std::string page;
  try {
    own.parse("--man");
  } catch (const CLI::CallForVersion& asked) {
    page = asked.what();
  }
  EXPECT_THAT(page, HasSubstr(".TH TOOL\\-LIST 1 "));
  EXPECT_THAT(page, HasSubstr("tool\\-list \\- lists what is there\n.SH SYNOPSIS\n.B tool list\n"));
  EXPECT_THAT(page, HasSubstr("\\fIDIR\\fR\nWhere (required).\n"));
}

TEST_F(CommandDocs, BashCompletesCommandsAndTheOptionsOfEach) {
  const std::string script = *CompletionScript(app_, "bash");
  EXPECT_EQ(Offered(script, "tool r", 1), "run\n");
  EXPECT_EQ(Offered(script, "tool run --", 2), "--help --workers --dry\n");
  EXPECT_EQ(Offered(script, "tool list --o", 2), "--output\n");
  EXPECT_THAT(*CompletionScript(app_, "zsh"), HasSubstr("bashcompinit"));
}

TEST_F(CommandDocs, FishCompletesThemWithWhatTheyMean) {
  const std::string script = *CompletionScript(app_, "fish");
  EXPECT_THAT(script, HasSubstr("complete -c tool -n __fish_use_subcommand -f -a run -d 'Train "
                                "here'\n"));
  EXPECT_THAT(script, HasSubstr("complete -c tool -n '__fish_seen_subcommand_from run' -l dry -d "
                                "'Don\\'t; say what would be'\n"));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
  EXPECT_TRUE(absl::IsInvalidArgument(CompletionScript(app_, "ksh").status()));
}

}  // namespace
}  // namespace sherd
