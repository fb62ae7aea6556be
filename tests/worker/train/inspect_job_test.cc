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
  const TrainerOptions options = {
      .data_root = root / "data", .output_root = root / "output", .threads = 1};
  const absl::Status refused = InspectJobFiles(data, checkpoint, 16, 256, options);
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()), testing::StartsWith("checkpoint.dir: "));
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("important.txt"));
  checkpoint.set_dir("new");
  EXPECT_TRUE(InspectJobFiles(data, checkpoint, 16, 256, options).ok());
}

}  // namespace
}  // namespace sherd
