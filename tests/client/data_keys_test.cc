// What a job trains on, as job files say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "client/job_file.h"
#include "client/render_json.h"
#include "client/run_plan.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string JobWith(const std::string& data) {
  return absl::StrCat("name: j\nmodel: {preset: gpt2-bytes}\ntrain: {steps: 1}\ndata:\n", data);
}

// The problem of a file; "" when it can run.
std::string Problem(const std::string& data) {
  const absl::StatusOr<JobFile> file = ParseJobFile(JobWith(data), "job.yaml", {});
  return std::string((file.ok() ? CheckJobFile(*file) : file.status()).message());
}

v1::DataSpec Data(const std::string& data) {
  const absl::StatusOr<JobFile> file = ParseJobFile(JobWith(data), "job.yaml", {});
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? file->spec.data() : v1::DataSpec();
}

TEST(DataKeys, EntriesHaveWeightsOrNot) {
  const v1::DataSpec mixed =
      Data("  train: [{path: a.txt, weight: 2.5}, {path: 'b*.txt', weight: 1}]\n");
  EXPECT_THAT(mixed.train(), ElementsAre("a.txt", "b*.txt"));
  EXPECT_THAT(mixed.train_weights(), ElementsAre(2.5, 1));
  const v1::DataSpec plain = Data("  train: [a.txt, {path: b.txt}]\n");
  EXPECT_THAT(plain.train(), ElementsAre("a.txt", "b.txt"));
  EXPECT_TRUE(plain.train_weights().empty());
}

TEST(DataKeys, AnOverrideTakesThePlaceOfAllEntries) {
  const absl::StatusOr<JobFile> file =
      ParseJobFile(JobWith("  train: [{path: a.txt, weight: 2}, {path: b.txt, weight: 1}]\n"),
                   "job.yaml", {"data.train=[c.txt]"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->spec.data().train(), ElementsAre("c.txt"));
  EXPECT_TRUE(file->spec.data().train_weights().empty());
}

// F55: each told with its line, and what would be right.
TEST(DataKeys, WrongEntriesAreNamed) {
  EXPECT_THAT(Problem("  train: [a.txt, {path: b.txt, weight: 1}]\n"),
              AllOf(HasSubstr("job.yaml:5: data.train: 'a.txt' has no weight"),
                    HasSubstr("give every entry one")));
  EXPECT_THAT(Problem("  train: [{path: a.txt, weigth: 1}]\n"),
              AllOf(HasSubstr("unknown key 'weigth'"), HasSubstr("did you mean 'weight'")));
  EXPECT_THAT(Problem("  train: [{weight: 1}]\n"), HasSubstr("an entry has no path"));
  EXPECT_THAT(Problem("  train: a.txt\n"), HasSubstr("must be a list"));
  EXPECT_THAT(Problem("  train: [{path: a.txt, weight: heavy}]\n"),
              HasSubstr("'heavy' must be a finite number"));
  EXPECT_THAT(Problem("  train: [{path: a.txt, weight: .nan}]\n"),
              HasSubstr("must be a finite number"));
  for (const char* const weight : {"0", "-1"}) {
    EXPECT_THAT(Problem(absl::StrCat("  train:\n    - {path: a.txt, weight: 1}\n",
                                     "    - {path: b.txt, weight: ", weight, "}\n")),
                AllOf(HasSubstr("job.yaml:7: data.train[1]"), HasSubstr("a weight above 0")));
  }
  EXPECT_THAT(Problem("  train: [{path: a.txt, weight: 1e-6}, {path: b.txt, weight: 1}]\n"),
              AllOf(HasSubstr("data.train[0]"), HasSubstr("less than 1 / 100000")));
}

TEST(DataKeys, WhatIsHeldOutIsAPartOfTheData) {
  EXPECT_EQ(Problem("  train: [a.txt]\n  validation_split: 0.05\n"), "");
  EXPECT_EQ(Data("  train: [a.txt]\n  validation_split: 0.05\n").validation_split(), 0.05);
  for (const char* const wrong : {"0.6", "-0.1", "1"}) {
    EXPECT_THAT(Problem(absl::StrCat("  train: [a.txt]\n  validation_split: ", wrong, "\n")),
                AllOf(HasSubstr("job.yaml:6: data.validation_split"), HasSubstr("at most 0.5")));
  }
  EXPECT_THAT(Problem("  train: [a.txt]\n  eval: [b.txt]\n  validation_split: 0.1\n"),
              HasSubstr("together with data.eval"));
}

TEST(DataKeys, ATokenizerIsAPath) {
  EXPECT_EQ(Problem("  train: [a.txt]\n  tokenizer: tokenizer.json\n"), "");
  EXPECT_THAT(
      Problem(absl::StrCat("  train: [a.txt]\n  tokenizer: ", std::string(5000, 'x'), "\n")),
      HasSubstr("'bytes' or the path of a tokenizer.json"));
  // Bytes need their ids; other tokens are checked against the file.
  const std::string small = "name: j\nmodel: {preset: gpt2-bytes, vocab: 100}\ntrain: {steps: 1}\n";
  for (const char* const format : {"text", "jsonl", "prompt_completion"}) {
    for (const bool bytes : {false, true}) {
      const absl::StatusOr<JobFile> file =
          ParseJobFile(absl::StrCat(small, "data: {train: [a], format: ", format,
                                    ", tokenizer: ", bytes ? "bytes" : "t.json", "}\n"),
                       "job.yaml", {});
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_EQ(CheckJobFile(*file).ok(), !bytes) << format;
    }
  }
}

TEST(DataKeys, AreShownAsTheyAreWritten) {
  const std::string data =
      "  train: [{path: a.txt, weight: 2.5}]\n  validation_split: 0.25\n  tokenizer: t.json\n";
  const absl::StatusOr<JobFile> file = ParseJobFile(JobWith(data), "job.yaml", {});
  ASSERT_TRUE(file.ok());
  const Json shown = SpecJson(NormalizeJobSpec(file->spec))["data"];
  EXPECT_EQ(shown["train"].dump(), "[{\"path\":\"a.txt\",\"weight\":2.5}]");
  EXPECT_EQ(shown["validation_split"], 0.25);
  // A tokenizer's path starts where the data's do.
  EXPECT_EQ(PlanRun({}, *file, "/here").spec.data().tokenizer(), "/here/t.json");
  RunOptions rooted;
  rooted.data_root = "data";
  EXPECT_EQ(PlanRun(rooted, *file, "/here").spec.data().tokenizer(), "t.json");
}

}  // namespace
}  // namespace sherd
