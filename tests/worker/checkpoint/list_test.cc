#include "worker/checkpoint/list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "tests/worker/checkpoint/training_world.h"
#include "worker/checkpoint/checkpoints_command.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ListTest : public testing::Test {
 protected:
  void Save(int64_t step, int64_t epoch = 1) {
    ASSERT_TRUE(
        SaveTraining(*files_, root_.path(), TrainingInfoOf(job_, step, epoch), world_).ok());
  }
  void SaveFinal() {
    ASSERT_TRUE(sherd::Save(*files_, FinalDirectory(root_.path()), TinyWeights(1), 3, 30).ok());
  }
  // Exit code and standard output of the command.
  std::pair<int, std::string> Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "checkpoints");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = CheckpointsMain(static_cast<int>(argv.size()), argv.data());
    const std::string out = testing::internal::GetCapturedStdout();
    errors_ = testing::internal::GetCapturedStderr();
    return {code, out};
  }
  // Flips a bit of the last byte, which is one of the data.
  void Damage(const std::string& name) {
    std::string bytes = ReadFile(root_ / name);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    root_.Write(name, bytes);
  }

  const v1::JobSpec job_ = SmallJob(v1::ARCHITECTURE_GPT2, true);
  const TrainingWorld world_{
      job_, {.data = 2}, WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job_.model())))), 0};
  const TemporaryDirectory root_;
  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
  std::string errors_;
};

TEST_F(ListTest, ShowsWhatStandsThereAndWhyItCannotBeUsed) {
  Save(10);
  Save(20, 4);
  Save(30);
  SaveFinal();
  std::filesystem::remove(root_ / "step-00000030-epoch-1/manifest.json");
  std::filesystem::resize_file(root_ / "step-00000010-epoch-1/shard-00001-of-00002.safetensors", 9);
  const auto [code, out] = Run({"list", root_.path(), "-o", "json"});
  EXPECT_EQ(code, 0);
  const nlohmann::json list = nlohmann::json::parse(out);
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0]["path"], root_ / "final");
  EXPECT_EQ(list[0]["kind"], "weights");
  EXPECT_EQ(list[0]["ranks"], 3);
  EXPECT_TRUE(list[0]["sound"]);
  EXPECT_EQ(list[1]["step"], 30);
  EXPECT_TRUE(list[1]["kind"].is_null());
  EXPECT_THAT(list[1]["error"].get<std::string>(), HasSubstr("no complete checkpoint"));
  EXPECT_EQ(list[2]["kind"], "training");
  EXPECT_EQ(list[2]["step"], 20);
  EXPECT_EQ(list[2]["epoch"], 4);
  EXPECT_EQ(list[2]["job"], "small-1");
  EXPECT_GT(list[2]["bytes"], 1000);
  EXPECT_EQ(list[2]["error"], "");
  EXPECT_FALSE(list[3]["sound"]);
  EXPECT_THAT(list[3]["error"].get<std::string>(), HasSubstr("it has 9 of"));
  const auto [table_code, table] = Run({"list", root_.path()});
  EXPECT_THAT(table, AllOf(HasSubstr("PATH"), HasSubstr("step-00000020-epoch-4  training  20"),
                           HasSubstr("sound\n")));
}

TEST_F(ListTest, VerifyReadsEveryByte) {
  Save(10);
  Save(20);
  SaveFinal();
  EXPECT_EQ(Run({"verify", root_.path()}).first, 0);
  Damage("step-00000020-epoch-1/shard-00002-of-00002.safetensors");
  EXPECT_EQ(Run({"list", root_.path()}).first, 0);
  const auto [code, out] = Run({"verify", root_.path(), "-o", "json"});
  EXPECT_EQ(code, 1);
  const nlohmann::json list = nlohmann::json::parse(out);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_TRUE(list[0]["sound"]);
  EXPECT_FALSE(list[1]["sound"]);
  EXPECT_THAT(list[1]["error"].get<std::string>(),
              AllOf(HasSubstr("shard-00002-of-00002.safetensors"), HasSubstr("checksum")));
  EXPECT_TRUE(list[2]["sound"]);
  // One by itself.
  EXPECT_EQ(Run({"verify", root_ / "step-00000010-epoch-1"}).first, 0);
  EXPECT_EQ(Run({"verify", root_ / "step-00000020-epoch-1"}).first, 1);
  // A file's header is not of any tensor.
  std::string bytes = ReadFile(root_ / "final/shard-00001-of-00003.safetensors");
  bytes[9] ^= 1;
  root_.Write("final/shard-00001-of-00003.safetensors", bytes);
  EXPECT_EQ(Run({"verify", root_ / "final"}).first, 1);
}

TEST_F(ListTest, SaysWhereThereIsNone) {
  for (const char* command : {"list", "verify"}) {
    EXPECT_EQ(Run({command, root_ / "nowhere"}).first, 1);
    EXPECT_THAT(errors_, HasSubstr("nowhere holds no checkpoint"));
  }
  std::filesystem::create_directories(root_ / "run");
  Save(10);
  std::filesystem::create_directory(root_ / "run/weights");
  std::filesystem::rename(root_ / "step-00000010-epoch-1",
                          root_ / "run/weights/step-00000010-epoch-1");
  EXPECT_EQ(Run({"list", root_ / "run"}).first, 1);
  EXPECT_THAT(errors_, HasSubstr("did you mean " + (root_ / "run/weights?")));
  EXPECT_EQ(Run({}).first, 2);
  EXPECT_EQ(Run({"list"}).first, 2);
  EXPECT_EQ(Run({"remove", root_.path()}).first, 2);
  EXPECT_EQ(Run({"list", root_.path(), "-o", "xml"}).first, 2);
  EXPECT_EQ(Run({"--help"}).first, 0);
}

}  // namespace
}  // namespace sherd
