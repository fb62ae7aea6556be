#include "worker/dataset/inspect_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"
#include "tests/worker/tokenizer/tokenizers.h"
#include "worker/dataset/job_dataset.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class InspectTextsTest : public testing::Test {
 protected:
  InspectTextsTest() {
    data_.set_format(v1::DATA_FORMAT_TEXT);
    data_.set_tokenizer("tokenizer.json");
    root_.Write("tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  }
  // The error's text; "" when all is fine.
  std::string Inspect(int64_t vocab = 2000) {
    return std::string(InspectTexts(data_, 8, vocab, root_.path()).message());
  }
  std::string InspectTrain(const std::string& name, const std::string& text) {
    root_.Write(name, text);
    data_.clear_train();
    data_.add_train(name);
    return Inspect();
  }

  const TemporaryDirectory root_;
  v1::DataSpec data_;
};

TEST_F(InspectTextsTest, NamesWhatIsWrongWithTheTokenizer) {
  EXPECT_EQ(InspectTrain("a.txt", "once upon a time there was a shard of a rank"), "");
  const int64_t ids = GoldenTokenizer("gpt2").vocab();
  EXPECT_EQ(Inspect(ids), "");
  EXPECT_THAT(Inspect(ids - 1), AllOf(StartsWith("data.tokenizer: tokenizer.json has ids up to"),
                                      HasSubstr("model.vocab is"), HasSubstr("at least")));
  // Also of ids that it has made before.
  data_.set_format(v1::DATA_FORMAT_LLMC);
  EXPECT_THAT(Inspect(ids - 1), StartsWith("data.tokenizer: "));
  data_.set_tokenizer("missing.json");
  EXPECT_THAT(Inspect(),
              AllOf(StartsWith("data.tokenizer: missing.json"), HasSubstr("does not exist")));
  data_.set_tokenizer(root_.Write("bad.json", "{}"));
  EXPECT_THAT(Inspect(), HasSubstr("bad.json: pre_tokenizer is absent"));
  data_.set_tokenizer("../tokenizer.json");
  EXPECT_THAT(Inspect(), StartsWith("data.tokenizer: "));
}

TEST_F(InspectTextsTest, NamesWhatIsWrongWithText) {
  EXPECT_THAT(InspectTrain("empty.txt", ""), StartsWith("data.train: empty.txt is empty"));
  EXPECT_THAT(InspectTrain("short.txt", "a b c"),
              AllOf(StartsWith("data.train: short.txt holds"), HasSubstr("train.seq_len 8")));
  EXPECT_THAT(InspectTrain("binary", std::string(3 << 20, 'x') + '\0' + "x"),
              AllOf(HasSubstr("binary is not text"), HasSubstr("3145728")));
  data_.clear_train();
  data_.add_train("nothing-*");
  EXPECT_THAT(Inspect(), HasSubstr("nothing-* matches no file"));
  data_.set_format(v1::DATA_FORMAT_JSONL);
  EXPECT_THAT(InspectTrain("a.jsonl", "{\"txet\": \"a\"}"),
              AllOf(StartsWith("data.train: a.jsonl: byte"), HasSubstr("no key \"text\"")));
  std::string lines;
  while (lines.size() < (3 << 20)) lines += "{\"text\": \"once upon a time\"}\n";
  EXPECT_EQ(InspectTrain("b.jsonl", lines), "");
  EXPECT_THAT(InspectTrain("b.jsonl", lines + "{"), HasSubstr("b.jsonl: byte"));
}

TEST_F(InspectTextsTest, NamesWhatIsWrongWithPrompts) {
  data_.set_tokenizer("bytes");
  data_.set_format(v1::DATA_FORMAT_PROMPT_COMPLETION);
  const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  EXPECT_EQ(InspectTrain("a.jsonl", good), "");
  EXPECT_THAT(InspectTrain("b.jsonl", "{\"prompt\": \"123456789\", \"completion\": \"b\"}\n"),
              AllOf(StartsWith("data.train: b.jsonl holds 1 lines"), HasSubstr("9 tokens")));
  EXPECT_THAT(InspectTrain("c.jsonl", good + "{\"prompt\": \"a\"}\n"),
              HasSubstr("no key \"completion\""));
  data_.set_validation_split(0.5);
  EXPECT_THAT(InspectTrain("d.jsonl", good), HasSubstr("too few to hold out 0.5"));
  EXPECT_EQ(InspectTrain("d.jsonl", good + good), "");
}

TEST_F(InspectTextsTest, LooksAtEveryWeightedEntryByItself) {
  InspectTrain("long.txt", "once upon a time there was a shard of a rank, kept by a model");
  data_.add_train(root_.Write("short.txt", "a"));
  EXPECT_EQ(Inspect(), "");
  data_.add_train_weights(1);
  data_.add_train_weights(1);
  EXPECT_THAT(Inspect(), HasSubstr("short.txt holds"));
}

TEST_F(InspectTextsTest, SendsLargeTextToThePacker) {
  root_.Write("large.txt", "x");
  std::filesystem::resize_file(root_ / "large.txt", kMostTextBytes + 1);
  data_.add_train("large.txt");
  EXPECT_THAT(Inspect(),
              AllOf(StartsWith("data.train: large.txt"), HasSubstr("sherd data tokenize")));
}

}  // namespace
}  // namespace sherd
