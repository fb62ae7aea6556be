#include "worker/data/data_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"

namespace sherd {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

Outcome RunData(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "sherd data");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code =
      DataMain(static_cast<int>(argv.size()), argv.data(), {DeclareDataInfo, DeclareDataHead});
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(DataInfo, SaysOfEveryFormatTheSameOfTheSameTokens) {
  const TemporaryDirectory root;
  const written::Ids ids = {'a', 'c', 'b', '\n'};
  root.Write("plain", "acb\n");
  root.Write("lines.jsonl", "{\"text\": \"ac\"}\n{\"text\": \"b\\n\"}\n");
  root.Write("nano.bin", written::TokensU16(ids));
  root.Write("llmc.bin", written::LlmcU32(ids));
  root.Write("pair.bin", written::Stored<int32_t>(ids));
  root.Write("pair.idx", written::IndexOf({1, 3}, 4, 4).Bytes());
  const Outcome outcome =
      RunData({"info", "--checksum", "-o", "json", root / "plain", root / "lines.jsonl",
               root / "nano.bin", root / "llmc.bin", root / "pair.*"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json.size(), 5u);
  const char* formats[] = {"text", "jsonl", "tokens_u16", "llmc", "megatron"};
  const int bytes[] = {4, 31, 8, 1040, 16 + 34 + 24 + 24};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(json[i]["format"], formats[i]);
    EXPECT_EQ(json[i]["tokens"], 4);
    EXPECT_EQ(json[i]["min"], '\n');
    EXPECT_EQ(json[i]["max"], 'c');
    EXPECT_EQ(json[i]["bytes"], bytes[i]);
    EXPECT_EQ(json[i]["checksum"], json[0]["checksum"]);
  }
  EXPECT_EQ(json[0]["documents"], nullptr);
  EXPECT_EQ(json[1]["documents"], 2);
  EXPECT_EQ(json[4]["documents"], 2);
  EXPECT_EQ(json[4]["type"], "int32");
}

TEST(DataInfo, PrintsATable) {
  const TemporaryDirectory root;
  const std::string path = root.Write("plain", "acb");
  EXPECT_EQ(RunData({"info", path}).out,
            "FORMAT  TYPE   TOKENS  DOCUMENTS  MIN  MAX  BYTES  FILE\n"
            "text    uint8  3       -          97   99   3      " +
                path + "\n");
  EXPECT_THAT(RunData({"info", path, "--checksum"}).out, HasSubstr("CHECKSUM"));
}

TEST(DataInfo, NamesTheFileThatIsNone) {
  const TemporaryDirectory root;
  const std::string good = root.Write("good", "acb");
  const std::string odd = root.Write("odd.bin", "acb");
  const Outcome outcome = RunData({"info", good, odd});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("sherd data info: " + odd + ": byte 2:"));
  EXPECT_EQ(RunData({"info", odd, "--format", "text"}).code, 0);
  EXPECT_EQ(RunData({"info", odd, "--format", "txt"}).code, 2);
  EXPECT_EQ(RunData({"info"}).code, 2);
  EXPECT_EQ(RunData({"inform", odd}).code, 2);
  EXPECT_THAT(RunData({"info", root / "x*"}).err, HasSubstr("matches no file"));
}

TEST(DataHead, PrintsIdsAndBytesAsText) {
  const TemporaryDirectory root;
  const std::string text = root.Write("plain", "a\x1b[2J\n\xc3\xa4nd so on");
  EXPECT_EQ(RunData({"head", text, "--tokens", "8"}).out,
            "97 27 91 50 74 10 195 164\na\\x1b[2J\\n\xc3\xa4\n");
  const std::string ids = root.Write("nano.bin", written::TokensU16({5, 50000}));
  EXPECT_EQ(RunData({"head", ids}).out, "5 50000\n");
  EXPECT_EQ(RunData({"head", ids, "-o", "json"}).out,
            "{\"file\":\"" + ids + "\",\"format\":\"tokens_u16\",\"tokens\":[5,50000]}\n");
  EXPECT_EQ(
      nlohmann::json::parse(RunData({"head", text, "-o", "json", "--tokens", "1"}).out)["text"],
      "a");
  EXPECT_EQ(RunData({"head", ids, "--tokens", "0"}).code, 2);
  const Outcome missing = RunData({"head", root / "missing"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.err, "sherd data head: " + (root / "missing") + " does not exist\n");
}

}  // namespace
}  // namespace sherd
