#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_directory.h"
#include "worker/train/trainer.h"

namespace sherd {
namespace {

// The coordinator tells the user the line of the field that a sentence begins with.
TEST(InspectJobFiles, ADirectoryThatHoldsOtherFilesIsToldOfCheckpointDir) {
  const TemporaryDirectory root;
  root.Write("data/text.txt", "seventeen letters");
  root.Write("output/mine/important.txt", "x");
  v1::DataSpec data;
  data.add_train("text.txt");
  v1::CheckpointSpec checkpoint;
  checkpoint.set_dir("mine");
  TrainerOptions options;
  options.data_root = root / "data";
  options.output_root = root / "output";
  const absl::Status refused = InspectJobFiles(data, checkpoint, 16, 256, options);
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()), testing::StartsWith("checkpoint.dir: "));
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("important.txt"));
  checkpoint.set_dir("new");
  EXPECT_TRUE(InspectJobFiles(data, checkpoint, 16, 256, options).ok());
}

// An earlier job's checkpoints and weights are no others.
TEST(InspectJobFiles, WhatJobsLeaveIsInNobodysWay) {
  const TemporaryDirectory root;
  root.Write("data/text.txt", "seventeen letters");
  root.Write("output/mine/step-00000002-epoch-1/manifest.json", "{}");
  root.Write("output/mine/final/manifest.json", "{}");
  root.Write("output/mine/.j-1.step-00000004-epoch-1.partial/shard-00001-of-00001.safetensors", "");
  root.Write("output/mine/latest", "");
  v1::DataSpec data;
  data.add_train("text.txt");
  v1::CheckpointSpec checkpoint;
  checkpoint.set_dir("mine");
  TrainerOptions options;
  options.data_root = root / "data";
  options.output_root = root / "output";
  EXPECT_TRUE(InspectJobFiles(data, checkpoint, 16, 256, options).ok());
}

// F42: not found out by the workers only.
TEST(InspectJobFiles, WhatAJobIsToGoOnFromIsLookedAt) {
  const TemporaryDirectory root;
  root.Write("data/text.txt", "seventeen letters");
  root.Write("output/other/manifest.json", "{}");
  root.Write("secret/manifest.json", "{}");
  v1::DataSpec data;
  data.add_train("text.txt");
  v1::CheckpointSpec checkpoint;
  checkpoint.set_dir("mine");
  TrainerOptions options;
  options.data_root = root / "data";
  options.output_root = root / "output";
  for (const char* const accepted : {"none", "latest"}) {
    checkpoint.set_resume(accepted);
    EXPECT_TRUE(InspectJobFiles(data, checkpoint, 16, 256, options).ok());
  }
  for (const std::string& refused :
       {std::string("nothing"), std::string("other"), std::string("../secret"), root / "secret"}) {
    checkpoint.set_resume(refused);
    const absl::Status status = InspectJobFiles(data, checkpoint, 16, 256, options);
    EXPECT_FALSE(status.ok()) << refused;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("checkpoint.resume: "));
  }
}

TEST(InspectJobFiles, AMissingCheckpointIsCalledMissing) {
  const TemporaryDirectory root;
  root.Write("data/text.txt", "seventeen letters");
  root.Write("output/other/file", "");
  v1::DataSpec data;
  data.add_train("text.txt");
  v1::CheckpointSpec checkpoint;
  checkpoint.set_dir("mine");
  TrainerOptions options;
  options.data_root = root / "data";
  options.output_root = root / "output";
  const auto error_of = [&](const std::string& resume) {
    checkpoint.set_resume(resume);
    return std::string(InspectJobFiles(data, checkpoint, 16, 256, options).message());
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
