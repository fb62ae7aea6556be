#include "worker/pack/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/worker/pack/packing.h"
#include "worker/pack/tokenize_command.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Whole texts, each with the end token after it.
std::vector<TokenId> IdsOfTexts(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<TokenId> ids;
  Encoder encoder(tokenizer);
  for (const std::string& text : texts) {
    encoder.Append(text, ids);
    ids.push_back(*tokenizer.FindAdded("<|endoftext|>"));
  }
  return ids;
}

TEST(Pack, TextFilesAreDocumentsWhateverThePieces) {
  const std::vector<std::string> texts = {SomeText(1, 30000), "", "short", SomeText(2, 70000)};
  const std::vector<TokenId> expected = IdsOfTexts(GoldenTokenizer("gpt2"), texts);
  for (const int64_t piece_bytes : {100, 4096, 1 << 20}) {
    for (const int threads : {1, 3}) {
      Packing packing;
      for (size_t i = 0; i < texts.size(); ++i) packing.AddFile(absl::StrCat(i), texts[i]);
      packing.options.piece_bytes = piece_bytes;
      packing.options.threads = threads;
      const auto summary = packing.Run();
      ASSERT_TRUE(summary.ok()) << summary.status();
      EXPECT_EQ(summary->documents, 4);
      EXPECT_EQ(summary->tokens, static_cast<int64_t>(expected.size()));
      ASSERT_EQ(IdsOf<uint16_t>(ReadFile(packing.options.out), 0), expected) << piece_bytes;
      EXPECT_FALSE(std::filesystem::exists(packing.options.out + ".pieces"));
    }
  }
}

TEST(Pack, LinesOfJsonAreDocumentsWhateverThePieces) {
  std::vector<std::string> texts;
  std::string lines;
  for (uint64_t i = 0; i < 400; ++i) {
    texts.push_back(DrawnText(7, i));
    absl::StrAppend(&lines, nlohmann::json{{"id", i}, {"body", texts.back()}}.dump(),
                    i % 5 == 0 ? "\r\n\n" : "\n");
  }
  lines.pop_back();
  const std::vector<TokenId> expected = IdsOfTexts(GoldenTokenizer("gpt2"), texts);
  for (const int64_t piece_bytes : {1, 300, 1 << 20}) {
    Packing packing;
    packing.AddFile("a.jsonl", lines);
    packing.options.jsonl = true;
    packing.options.field = "body";
    packing.options.piece_bytes = piece_bytes;
    packing.options.threads = 2;
    const auto summary = packing.Run();
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(summary->documents, 400);
    ASSERT_EQ(IdsOf<uint16_t>(ReadFile(packing.options.out), 0), expected) << piece_bytes;
  }
}

TEST(Pack, TextsThatCannotBeCutStayWhole) {
  Packing packing;
  packing.options.tokenizer = packing.root.Write("flags.json", GoldenTokenizerJson("flags").dump());
  packing.AddFile("a", SomeText(8, 50000));
  packing.options.piece_bytes = 1000;
  const auto summary = packing.Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->pieces, 1u);
  EXPECT_EQ(IdsOf<uint16_t>(ReadFile(packing.options.out), 0),
            IdsOfTexts(GoldenTokenizer("flags"), {SomeText(8, 50000)}));
}

TEST(Pack, WritesTheHeadersOfLlmc) {
  Packing packing;
  packing.options.format = PackFormat::kLlmc;
  packing.AddFile("a", "the words of the world");
  ASSERT_TRUE(packing.Run().ok());
  const std::vector<TokenId> expected =
      IdsOfTexts(GoldenTokenizer("gpt2"), {"the words of the world"});
  std::string file = ReadFile(packing.options.out);
  std::vector<TokenId> header = IdsOf<uint32_t>(file.substr(0, 1024), 0);
  EXPECT_THAT(std::vector<TokenId>(header.begin(), header.begin() + 4),
              testing::ElementsAre(20240520, 1, expected.size(), 0));
  EXPECT_EQ(IdsOf<uint16_t>(file, 1024), expected);

  // A vocabulary beyond uint16.
  nlohmann::json document = GoldenTokenizerJson("gpt2");
  document["model"]["vocab"]["ĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠ!"] = 70000;
  // One entry more moves the added token's id.
  document["added_tokens"].clear();
  packing.options.tokenizer = packing.root.Write("large.json", document.dump());
  packing.options.out = packing.root / "large";
  packing.options.no_end_token = true;
  const auto summary = packing.Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->id_bytes, 4);
  file = ReadFile(packing.options.out);
  header = IdsOf<uint32_t>(file.substr(0, 1024), 0);
  EXPECT_EQ(header[0], 20240801u);
  EXPECT_EQ(header[1], 7u);
  EXPECT_EQ(IdsOf<uint32_t>(file, 1024),
            std::vector<TokenId>(expected.begin(), expected.end() - 1));
  packing.options.format = PackFormat::kTokensU16;
  packing.options.out = packing.root / "narrow";
  EXPECT_THAT(packing.Error(), HasSubstr("70001 ids do not fit into uint16"));
}

TEST(Pack, PutsAroundDocumentsWhatItIsAskedTo) {
  Packing packing;
  packing.options.tokenizer =
      packing.root.Write("llama3.json", GoldenTokenizerJson("llama3").dump());
  packing.AddFile("a", "<|eot_id|>");
  packing.options.post_process = true;
  packing.options.end_token = "<|eot_id|>";
  ASSERT_TRUE(packing.Run().ok());
  const Tokenizer tokenizer = GoldenTokenizer("llama3");
  const TokenId begin = *tokenizer.FindAdded("<|begin_of_text|>");
  const TokenId end = *tokenizer.FindAdded("<|eot_id|>");
  EXPECT_THAT(IdsOf<uint16_t>(ReadFile(packing.options.out), 0),
              testing::ElementsAre(begin, end, end));
  packing.options.out += "2";
  packing.options.special_as_text = true;
  ASSERT_TRUE(packing.Run().ok());
  EXPECT_GT(IdsOf<uint16_t>(ReadFile(packing.options.out), 0).size(), 3u);
}

TEST(Pack, NamesWhatIsWrong) {
  Packing packing;
  EXPECT_THAT(packing.Error(), HasSubstr("no file is named"));
  packing.AddFile("a.jsonl", "{\"text\": \"x\"}\n{\"text\": 3}\n");
  packing.options.jsonl = true;
  EXPECT_THAT(packing.Error(), AllOf(HasSubstr("a.jsonl: the line at byte 14: "),
                                     HasSubstr("its field \"text\" is no string")));
  const auto error_of_line = [&](const std::string& line) {
    packing.options.files = {packing.root.Write("b.jsonl", line)};
    std::filesystem::remove_all(packing.options.out + ".pieces");
    return packing.Error();
  };
  EXPECT_THAT(error_of_line("\n{\"text\": \"x\""), HasSubstr("the line at byte 1: its JSON has"));
  EXPECT_THAT(error_of_line("{\"body\": \"x\"}"), HasSubstr("it has no field \"text\""));
  EXPECT_THAT(error_of_line("[1]"), HasSubstr("it is no JSON object"));
  EXPECT_THAT(error_of_line("{\"text\": \"\xFF\"}"), HasSubstr("syntax error at byte"));
  packing.options.files = {packing.root / "none"};
  EXPECT_THAT(packing.Error(), HasSubstr("/none cannot be read"));
  packing.options.files = {packing.root.path()};
  EXPECT_THAT(packing.Error(), HasSubstr("is not a regular file"));
  packing.options.end_token = "<|none|>";
  EXPECT_THAT(packing.Error(), HasSubstr("no added token <|none|>"));
  packing.options.tokenizer = packing.root.Write("bad.json", "{\"model\": 1}");
  EXPECT_THAT(packing.Error(), HasSubstr("bad.json: pre_tokenizer is absent"));
  EXPECT_FALSE(std::filesystem::exists(packing.options.out));
}

TEST(Pack, NeverOverwrites) {
  Packing packing;
  packing.AddFile("a", "the words");
  packing.root.Write("out", "precious");
  EXPECT_TRUE(absl::IsAlreadyExists(packing.Run().status()));
  EXPECT_EQ(ReadFile(packing.options.out), "precious");
}

TEST(DeclareDataTokenize, AnswersScripts) {
  Packing packing;
  const std::string text = packing.root.Write("a", "the words");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"data", "tokenize"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return DataMain(static_cast<int>(argv.size()), argv.data(), {DeclareDataTokenize});
  };
  const std::string& tokenizer = packing.options.tokenizer;
  const std::string& out = packing.options.out;
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"--tokenizer", tokenizer, "--out", out, "-o", "json", text}), 0);
  const auto summary = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(summary["documents"], 1);
  EXPECT_EQ(summary["format"], "llmc");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--tokenizer", tokenizer, "--out", out, text}), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("/out exists"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--tokenizer", tokenizer, "--out", out}), 2);
  EXPECT_EQ(run({"--tokenizer", tokenizer, "--out", out, "--text", "--jsonl", text}), 2);
  EXPECT_EQ(run({"--tokenizer", tokenizer, "--out", out, "--field", "x", text}), 2);
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace sherd
