#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_directory.h"
#include "worker/train/trainer.h"

namespace sherd {
namespace {

// A job on one text, with checkpoints in "mine".
class InspectJobFilesTest : public testing::Test {
 protected:
  InspectJobFilesTest() {
    root_.Write("data/text.txt", "seventeen letters");
    checkpoint_.set_dir("mine");
  }
  absl::Status Inspect() const {
    v1::DataSpec data;
    data.add_train("text.txt");
    TrainerOptions options;
    options.data_root = root_ / "data";
    options.output_root = root_ / "output";
    return InspectJobFiles(data, checkpoint_, /*seq_len=*/16, /*vocab=*/256, options);
  }

  const TemporaryDirectory root_;
  v1::CheckpointSpec checkpoint_;
};

// The coordinator tells the user the line of the field that a sentence begins with.
TEST_F(InspectJobFilesTest, ADirectoryThatHoldsOtherFilesIsToldOfCheckpointDir) {
  root_.Write("output/mine/important.txt", "x");
  const absl::Status refused = Inspect();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()), testing::StartsWith("checkpoint.dir: "));
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("important.txt"));
  checkpoint_.set_dir("new");
  EXPECT_TRUE(Inspect().ok());
}

// An earlier job's checkpoints and weights are no others.
TEST_F(InspectJobFilesTest, WhatJobsLeaveIsInNobodysWay) {
  root_.Write("output/mine/step-00000002-epoch-1/manifest.json", "{}");
  root_.Write("output/mine/final/manifest.json", "{}");
  root_.Write("output/mine/.j-1.step-00000004-epoch-1.partial/shard-00001-of-00001.safetensors",
              "");
  root_.Write("output/mine/latest", "");
  EXPECT_TRUE(Inspect().ok());
}

// F42: not found out by the workers only.
TEST_F(InspectJobFilesTest, WhatAJobIsToGoOnFromIsLookedAt) {
  root_.Write("output/other/manifest.json", "{}");
  root_.Write("secret/manifest.json", "{}");
  for (const char* const accepted : {"none", "latest"}) {
    checkpoint_.set_resume(accepted);
    EXPECT_TRUE(Inspect().ok());
  }
  for (const std::string& refused :
       {std::string("nothing"), std::string("other"), std::string("../secret"), root_ / "secret"}) {
    checkpoint_.set_resume(refused);
    const absl::Status status = Inspect();
    EXPECT_FALSE(status.ok()) << refused;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("checkpoint.resume: "));
  }
}

TEST_F(InspectJobFilesTest, AMissingCheckpointIsCalledMissing) {
  root_.Write("output/other/file", "");
  const auto error_of = [&](const std::string& resume) {
    checkpoint_.set_resume(resume);
    return std::string(Inspect().message());
  };
  EXPECT_THAT(error_of("lastest"),
              testing::AllOf(testing::HasSubstr("output/lastest does not exist"),
                             testing::EndsWith("; did you mean 'latest'?")));
  EXPECT_THAT(error_of("elsewhere/step-00000010-epoch-1"),
              testing::EndsWith("epoch-1 does not exist on the worker's machine"));
  EXPECT_THAT(error_of("other"), testing::EndsWith("other holds no complete checkpoint"));
}

}  // namespace
}  // namespace sherd
