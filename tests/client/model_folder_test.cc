#include "client/model_folder.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client/run_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/model_config.h"
#include "plan/model_folder.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ModelFolderTest : public testing::Test {
 protected:
  static ModelShape Shape() {
    ModelShape shape;
    shape.layers = 2;
    shape.hidden = 24;
    shape.heads = shape.kv_heads = 3;
    shape.ffn = 40;
    shape.vocab = 300;
    shape.context = 16;
    return shape;
  }
  JobFile Job(const std::string& model) {
    const auto file =
        ParseJobFile(absl::StrCat("name: job\nmodel: ", model,
                                  "\ndata: {train: [corpus.txt]}\ntrain: {steps: 3}\n"),
                     "job.yaml", {});
    EXPECT_TRUE(file.ok()) << file.status();
    return file.value_or(JobFile());
  }
  const TemporaryDirectory scratch_;
};

TEST_F(ModelFolderTest, PlanTakesTheShapeOfTheFolderOnThisMachine) {
  scratch_.Write("tiny/config.json", FormatModelConfig(Shape(), "float32"));
  JobFile file = Job(absl::StrCat("{from: ", scratch_ / "tiny", ", vocab: 300}"));
  EXPECT_TRUE(CheckJobFile(file).ok()) << CheckJobFile(file);
  ASSERT_TRUE(ReadModelFolder(file).ok()) << ReadModelFolder(file);
  EXPECT_FALSE(AwaitsShape(file.spec.model()));
  EXPECT_TRUE(ShapeOf(file.spec.model()) == Shape());
  EXPECT_TRUE(CheckJobFile(file).ok()) << CheckJobFile(file);
}

TEST_F(ModelFolderTest, WhatIsWrongIsToldWithItsLine) {
  scratch_.Write("tiny/config.json", FormatModelConfig(Shape(), "float32"));
  JobFile differs = Job(absl::StrCat("\n  from: ", scratch_ / "tiny", "\n  heads: 4"));
  EXPECT_THAT(std::string(ReadModelFolder(differs).message()),
              StartsWith("job.yaml:4: model.heads: 4 is not what config.json"));
  JobFile missing = Job("{from: nowhere}");
  EXPECT_THAT(
      std::string(ReadModelFolder(missing).message()),
      AllOf(StartsWith("job.yaml:2: model.from: nowhere/config.json cannot be read on this"),
            HasSubstr("--set model.from=DIR")));
  scratch_.Write("other/config.json", "{\"model_type\": \"bert\"}");
  JobFile other = Job(absl::StrCat("{from: ", scratch_ / "other", "}"));
  EXPECT_THAT(std::string(ReadModelFolder(other).message()),
              HasSubstr("\"bert\" is not supported"));
  JobFile none = Job("{preset: gpt2-bytes}");
  EXPECT_TRUE(ReadModelFolder(none).ok());
}

// As paths of data do.
TEST_F(ModelFolderTest, ALocalRunsFolderStartsAtThePresentDirectory) {
  const JobFile file = Job("{from: models/tiny}");
  RunOptions options;
  EXPECT_EQ(PlanRun(options, file, "/home/me").spec.model().from(), "/home/me/models/tiny");
  options.data_root = "data";
  EXPECT_EQ(PlanRun(options, file, "/home/me").spec.model().from(), "models/tiny");
}

}  // namespace
}  // namespace sherd
