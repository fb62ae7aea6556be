#include "worker/evaluate/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/published_weights.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/tokenizer/tokenizers.h"
#include "worker/evaluate/evaluate_command.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() {
    shape_.layers = 2;
    shape_.hidden = 16;
    shape_.heads = shape_.kv_heads = 2;
    shape_.ffn = 24;
    shape_.vocab = 300;
    shape_.context = 12;
    options_.weights = root_ / "weights";
    options_.data = {root_.Write("text.txt", text_)};
  }

  // A model whose weights are there, as one of tokens as `tokenizer` says.
  std::unique_ptr<ModelHarness> Save(const std::string& tokenizer = "bytes") {
    auto model = std::make_unique<ModelHarness>(shape_, 1, shape_.context);
    model->Randomize(5);
    PublishWeights(options_.weights, {"job", 7, 1, shape_, tokenizer}, model->inventory(),
                   [&](const Parameter& parameter) { return model->param(parameter.name); });
    return model;
  }
  // The sum of the losses of all ids but the first, sequence after sequence.
  double Expected(ModelHarness& model, const std::vector<TokenId>& ids) const {
    const auto length = static_cast<size_t>(shape_.context);
    double loss = 0;
    for (size_t at = 0; at + 1 < ids.size(); at += length) {
      std::vector<int32_t> inputs(length, 0), targets(length, -1);
      for (size_t i = 0; i < length && at + i + 1 < ids.size(); ++i) {
        inputs[i] = static_cast<int32_t>(ids[at + i]);
        targets[i] = static_cast<int32_t>(ids[at + i + 1]);
      }
      loss += model.Loss({1, shape_.context, inputs.data(), targets.data()});
    }
    return loss;
  }
  std::string Error() const { return std::string(Evaluate(options_).status().message()); }

  const TemporaryDirectory root_;
  const std::string text_ = "Once upon a time there was a shard, kept by a rank.\n";
  ModelShape shape_;
  EvaluateOptions options_;
};

TEST_F(EvaluateTest, LossesArePredictedTokensAlone) {
  const std::unique_ptr<ModelHarness> model = Save();
  const auto evaluation = Evaluate(options_);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  const double loss = Expected(*model, {text_.begin(), text_.end()});
  const auto tokens = static_cast<double>(text_.size() - 1);
  EXPECT_EQ(evaluation->tokens, static_cast<int64_t>(text_.size()) - 1);
  EXPECT_EQ(evaluation->bytes, evaluation->tokens);
  EXPECT_EQ(evaluation->sequences, 5);
  EXPECT_EQ(evaluation->step, 7);
  EXPECT_EQ(evaluation->loss, loss / tokens);
  EXPECT_EQ(evaluation->perplexity, std::exp(loss / tokens));
  EXPECT_NEAR(*evaluation->bits_per_byte, loss / tokens / std::numbers::ln2, 1e-12);
}

// F12: the same bits on any number of workers.
TEST_F(EvaluateTest, TheNumberOfWorkersChangesNoBit) {
  Save();
  std::string text;
  while (text.size() < 1000) text += text_;
  options_.data = {root_.Write("long.txt", text)};
  const auto one = Evaluate(options_);
  ASSERT_TRUE(one.ok());
  for (const int workers : {2, 3, 200}) {
    options_.workers = workers;
    const auto other = Evaluate(options_);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(std::bit_cast<uint64_t>(other->loss), std::bit_cast<uint64_t>(one->loss));
    EXPECT_EQ(other->bits_per_byte, one->bits_per_byte);
  }
}

// A byte of text is a byte, whatever the tokens are; what ends a document is none.
TEST_F(EvaluateTest, BitsAByteAreOfTheText) {
  const std::string path = root_.Write("tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  const Tokenizer tokenizer = GoldenTokenizer("gpt2");
  shape_.vocab = tokenizer.vocab();
  const std::unique_ptr<ModelHarness> model = Save(path);
  const auto evaluation = Evaluate(options_);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  std::vector<TokenId> ids;
  Encoder(tokenizer).Append(text_, ids);
  ids.push_back(*tokenizer.FindAdded("<|endoftext|>"));
  const double loss = Expected(*model, ids);
  const auto first = static_cast<int64_t>(tokenizer.TokenBytes(ids.front()).size());
  EXPECT_EQ(evaluation->loss, loss / static_cast<double>(ids.size() - 1));
  EXPECT_EQ(evaluation->bytes, static_cast<int64_t>(text_.size()) - first);
  EXPECT_NEAR(*evaluation->bits_per_byte,
              loss / std::numbers::ln2 / static_cast<double>(*evaluation->bytes), 1e-12);

  // The same ids from a file: the weights say what they mean.
  std::string packed;
  for (const TokenId id : ids) {
    packed += {static_cast<char>(id & 0xFF), static_cast<char>(id >> 8)};
  }
  options_.data = {root_.Write("packed.bin", packed)};
  options_.format = v1::DATA_FORMAT_TOKENS_U16;
  const auto of_ids = Evaluate(options_);
  ASSERT_TRUE(of_ids.ok()) << of_ids.status();
  EXPECT_EQ(of_ids->loss, evaluation->loss);
  EXPECT_EQ(of_ids->bits_per_byte, evaluation->bits_per_byte);
}

TEST_F(EvaluateTest, OfIdsThatNobodyExplainsThereAreNoBytes) {
  Save();
  options_.data = {root_.Write("ids.bin", "abcdefgh")};
  options_.format = v1::DATA_FORMAT_TOKENS_U16;
  shape_.vocab = 1 << 15;
  Save();
  const auto evaluation = Evaluate(options_);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->tokens, 3);
  EXPECT_FALSE(evaluation->bytes.has_value());
  EXPECT_FALSE(evaluation->bits_per_byte.has_value());
}

TEST_F(EvaluateTest, OfPromptsTheCompletionsCount) {
  Save();
  options_.data = {root_.Write("lines.jsonl",
                               "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n"
                               "{\"prompt\": \"much longer than that\", \"completion\": \"x\"}\n"
                               "{\"prompt\": \"a\", \"completion\": \"b\"}\n")};
  options_.format = v1::DATA_FORMAT_PROMPT_COMPLETION;
  const auto evaluation = Evaluate(options_);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->tokens, 3 + 2);
  EXPECT_EQ(evaluation->sequences, 2);
  EXPECT_THAT(evaluation->note, HasSubstr("1 of 3 lines"));
}

TEST_F(EvaluateTest, SaysWhatIsWrong) {
  EXPECT_THAT(Error(), HasSubstr("weights"));
  Save();
  options_.seq_len = 13;
  EXPECT_THAT(Error(), AllOf(HasSubstr("--seq-len 13"), HasSubstr("context, 12")));
  options_.seq_len = 0;
  options_.workers = 0;
  EXPECT_THAT(Error(), HasSubstr("--workers 0"));
  options_.workers = 1;
  options_.data = {root_ / "missing.txt"};
  EXPECT_THAT(Error(), HasSubstr("missing.txt"));
  options_.data = {root_ / "text.txt"};
  options_.tokenizer = root_.Write("tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  EXPECT_THAT(Error(), AllOf(HasSubstr("tokenizer.json"), HasSubstr("the model 300")));
  options_.tokenizer = "";
  Save("/nowhere/tokenizer.json");
  EXPECT_THAT(Error(), AllOf(HasSubstr("/nowhere/tokenizer.json"), HasSubstr("--tokenizer")));
}

TEST_F(EvaluateTest, TheCommandTellsWhatIsNotThereAsHere) {
  Save();
  const auto code_of = [](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    return EvaluateMain(static_cast<int>(arguments.size()), arguments.data());
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(code_of({"eval", options_.weights, root_ / "missing.txt"}), 2);
  EXPECT_EQ(code_of({"eval", root_ / "nowhere", root_ / "text.txt"}), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("missing.txt does not exist\n"),
                          HasSubstr("nowhere holds no complete checkpoint")));
  // As imported from a folder without a tokenizer.json.
  Save("unknown");
  EXPECT_THAT(Error(), HasSubstr("give --tokenizer bytes, or --tokenizer PATH"));
  options_.tokenizer = "bytes";
  EXPECT_TRUE(Evaluate(options_).ok()) << Evaluate(options_).status();
}

}  // namespace
}  // namespace sherd
