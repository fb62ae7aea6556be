#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"
#include "tests/worker/tokenizer/tokenizers.h"
#include "worker/dataset/data_commands.h"
#include "worker/dataset/prompt_file.h"
#include "worker/dataset/text_codec.h"

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

constexpr char kTwoPrompts[] =
    "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n\n"
    "{\"completion\": \"\", \"more\": 1, \"prompt\": \"xyz\"}\n";

// As PromptSequences: the end token is counted, the prompt is not, nor the first token of all.
TEST(DataInfo, CountsWhatTheLossCountsOfPromptsAndCompletions) {
  const TemporaryDirectory root;
  const std::string lines = root.Write("lines.jsonl", kTwoPrompts);
  const std::string plain = root.Write("plain", "acb");
  const Outcome outcome = RunData({"info", "-o", "json", lines, plain});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json[0]["format"], "prompt_completion");
  EXPECT_EQ(json[0]["documents"], 2);
  EXPECT_EQ(json[0]["tokens"], 5 + 4);
  EXPECT_EQ(json[0]["masked"], 2 + 3);
  EXPECT_EQ(json[0]["unmasked"], 3 + 1);
  EXPECT_EQ(json[0]["left_out"], 0);
  EXPECT_EQ(json[0]["min"], 0);
  EXPECT_EQ(json[0]["max"], 'z');
  EXPECT_EQ(json[0]["bytes"], sizeof(kTwoPrompts) - 1);
  EXPECT_FALSE(json[1].contains("masked"));
  const std::string table = RunData({"info", lines, plain}).out;
  EXPECT_THAT(table, HasSubstr("BYTES  MASKED  UNMASKED  LEFT OUT  FILE\n"));
  EXPECT_THAT(table, HasSubstr(" 5       4         0         " + lines + "\n"));
  EXPECT_THAT(table, HasSubstr(" -       -         -         " + plain + "\n"));
}

// The same as what training has of the same lines.
TEST(DataInfo, CountsPromptsAsTrainingOfALengthDoes) {
  const TemporaryDirectory root;
  PromptSources sources;
  sources.tokenizer = "bytes";
  sources.files = {root.Write("lines.jsonl", std::string(kTwoPrompts) +
                                                 R"({"prompt": "p", "completion": "0123456789"})"
                                                 "\n"
                                                 R"({"prompt": "", "completion": ""})"
                                                 "\n")};
  const std::string made = root / "prompts.bin";
  ASSERT_TRUE(WritePromptFile(sources, made).ok());
  for (const int64_t seq_len : {1, 2, 3, 4, 7, 100}) {
    const auto sequences = PromptSequences::Open(made, seq_len, 256);
    const Outcome outcome = RunData(
        {"info", "-o", "json", "--seq-len", std::to_string(seq_len), sources.files.front()});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out)[0];
    ASSERT_TRUE(sequences.ok()) << sequences.status();
    int64_t counted = 0;
    for (int64_t at = 0; at < (*sequences)->count(); ++at) counted += (*sequences)->Targets(at);
    EXPECT_EQ(json["unmasked"], counted) << seq_len;
    EXPECT_EQ(json["left_out"], (*sequences)->skipped()) << seq_len;
    EXPECT_EQ(json["masked"], json["tokens"].get<int64_t>() - counted) << seq_len;
    EXPECT_LE(json["tokens"], (*sequences)->count() * (seq_len + 1)) << seq_len;
  }
}

TEST(DataInfo, TakesPromptsWithATokenizer) {
  const TemporaryDirectory root;
  const std::string tokenizer = root.Write("tokenizer.json", GoldenTokenizerJson("llama3").dump());
  const std::string lines = root.Write("lines.jsonl", kTwoPrompts);
  const absl::StatusOr<TextCodec> codec = TextCodec::Load(tokenizer);
  ASSERT_TRUE(codec.ok()) << codec.status();
  const Outcome outcome = RunData({"info", "-o", "json", "--tokenizer", tokenizer, lines});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out)[0];
  const size_t unmasked = codec->Encode("cd").size() + 2;
  EXPECT_EQ(json["unmasked"], unmasked);
  EXPECT_EQ(json["masked"],
            2 * codec->Start().size() + codec->Encode("ab").size() + codec->Encode("xyz").size());
  EXPECT_EQ(json["type"], "uint32");
  const std::string head = RunData({"head", "--tokenizer", tokenizer, lines}).out;
  EXPECT_THAT(head, HasSubstr("\ncd<|end_of_text|>\n"));
}

TEST(DataInfo, RefusesWhatSaysNothingOfAFile) {
  const TemporaryDirectory root;
  const std::string plain = root.Write("plain", "acb");
  const std::string both =
      root.Write("both.jsonl", R"({"text": "t", "prompt": "p", "completion": "c"})");
  EXPECT_EQ(RunData({"info", "--seq-len", "4", plain}).err,
            "sherd data info: --seq-len is for files of format prompt_completion, but " + plain +
                " is text\n");
  EXPECT_THAT(RunData({"head", "--tokenizer", "bytes", plain}).err,
              HasSubstr("--tokenizer is for files of format prompt_completion"));
  EXPECT_EQ(RunData({"info", "--seq-len", "0", plain}).code, 2);
  EXPECT_THAT(RunData({"info", both}).out, HasSubstr("jsonl "));
  EXPECT_THAT(RunData({"info", "--format", "prompt_completion", both}).out,
              HasSubstr("prompt_completion "));
  EXPECT_THAT(RunData({"info", "--format", "prompt_completion", root.Write("none", "\n")}).err,
              HasSubstr("none holds no line; each must be a JSON object"));
  EXPECT_THAT(RunData({"info", "--format", "prompt_completion", plain}).err,
              HasSubstr("plain: byte 0:"));
  EXPECT_THAT(RunData({"info", "--tokenizer", root / "absent.json", both}).err,
              HasSubstr("absent.json"));
}

TEST(DataHead, ShowsPromptsAndCompletions) {
  const TemporaryDirectory root;
  const std::string lines = root.Write("lines.jsonl", kTwoPrompts);
  EXPECT_EQ(RunData({"head", lines}).out,
            "2 masked and 3 unmasked tokens\n"
            "prompt: 97 98\nab\n"
            "completion: 99 100 0\ncd\xEF\xBF\xBD\n"
            "3 masked and 1 unmasked tokens\n"
            "prompt: 120 121 122\nxyz\n"
            "completion: 0\n\xEF\xBF\xBD\n");
  const auto json =
      nlohmann::json::parse(RunData({"head", lines, "-o", "json", "--tokens", "6"}).out);
  ASSERT_EQ(json["sequences"].size(), 2u);
  EXPECT_EQ(json["sequences"][0]["completion"]["tokens"], (std::vector<int>{'c', 'd', 0}));
  EXPECT_EQ(json["sequences"][1]["prompt"]["text"], "x");
  EXPECT_EQ(json["sequences"][1]["masked"], 3);
  EXPECT_EQ(json["sequences"][1]["completion"]["tokens"], std::vector<int>());
  EXPECT_EQ(nlohmann::json::parse(
                RunData({"head", lines, "-o", "json", "--tokens", "5"}).out)["sequences"]
                .size(),
            1u);
}

}  // namespace
}  // namespace sherd
