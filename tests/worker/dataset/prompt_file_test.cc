#include "worker/dataset/prompt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tests/worker/tokenizer/tokenizers.h"

namespace sherd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PromptFile : public testing::Test {
 protected:
  PromptFile() { sources_.tokenizer = "bytes"; }
  // The sequences of some lines whose tokens are bytes.
  std::unique_ptr<PromptSequences> Open(const std::string& lines, int64_t seq_len,
                                        int64_t vocab = 256) {
    sources_.files = {scratch_.Write("lines.jsonl", lines)};
    status_ = WritePromptFile(sources_, path_);
    if (!status_.ok()) return nullptr;
    auto opened = PromptSequences::Open(path_, seq_len, vocab);
    status_ = opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  const TemporaryDirectory scratch_;
  const std::string path_ = scratch_ / "prompts.bin";
  PromptSources sources_;
  absl::Status status_;
};

struct Sequence {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
};

Sequence Read(const Sequences& sequences, int64_t index) {
  const auto length = static_cast<size_t>(sequences.seq_len());
  Sequence read{std::vector<int32_t>(length, -7), std::vector<int32_t>(length, -7)};
  EXPECT_TRUE(sequences.Fill(index, read.inputs.data(), read.targets.data()).ok());
  int64_t counted = 0;
  for (const int32_t target : read.targets) counted += target >= 0 ? 1 : 0;
  EXPECT_EQ(counted, sequences.Targets(index));
  return read;
}

// The completion and its end are predicted, the prompt and the padding are not.
TEST_F(PromptFile, MasksAllButTheCompletion) {
  const auto sequences = Open(
      "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n"
      "{\"completion\": \"\", \"more\": 1, \"prompt\": \"xyz\"}\n",
      6);
  ASSERT_NE(sequences, nullptr) << status_;
  ASSERT_EQ(sequences->count(), 2);
  EXPECT_EQ(sequences->tokens(), 5 + 4);
  const Sequence first = Read(*sequences, 0);
  EXPECT_THAT(first.inputs, ElementsAre('a', 'b', 'c', 'd', 0, 0));
  EXPECT_THAT(first.targets, ElementsAre(-1, 'c', 'd', 0, -1, -1));
  // An empty completion is one that ends at once.
  EXPECT_THAT(Read(*sequences, 1).targets, ElementsAre(-1, -1, 0, -1, -1, -1));
}

TEST_F(PromptFile, WithoutAPromptTheFirstTokenIsNotPredicted) {
  const auto sequences = Open("{\"prompt\": \"\", \"completion\": \"abc\"}", 4);
  ASSERT_NE(sequences, nullptr) << status_;
  EXPECT_THAT(Read(*sequences, 0).targets, ElementsAre('b', 'c', 0, -1));
}

TEST_F(PromptFile, CutsTheEndOfWhatIsTooLong) {
  const auto sequences = Open("{\"prompt\": \"ab\", \"completion\": \"cdefg\"}", 4);
  ASSERT_NE(sequences, nullptr) << status_;
  const Sequence only = Read(*sequences, 0);
  EXPECT_THAT(only.inputs, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(only.targets, ElementsAre(-1, 'c', 'd', 'e'));
}

// A sequence of which nothing is predicted would only cost time.
TEST_F(PromptFile, LeavesOutLinesWhoseCompletionsDoNotBeginInTime) {
  const auto sequences = Open(
      "{\"prompt\": \"abcd\", \"completion\": \"e\"}\n"
      "{\"prompt\": \"abcde\", \"completion\": \"f\"}\n"
      "{\"prompt\": \"abcdef\", \"completion\": \"g\"}\n",
      5);
  ASSERT_NE(sequences, nullptr) << status_;
  EXPECT_EQ(sequences->lines(), 3);
  EXPECT_EQ(sequences->skipped(), 1);
  EXPECT_THAT(Read(*sequences, 1).targets, ElementsAre(-1, -1, -1, -1, 'f'));
  EXPECT_EQ(Open("{\"prompt\": \"abcdef\", \"completion\": \"g\"}", 5), nullptr);
  EXPECT_THAT(std::string(status_.message()),
              testing::AllOf(HasSubstr("of 1 lines none"), HasSubstr("6 tokens")));
}

TEST_F(PromptFile, NamesFileByteAndReasonOfABadLine) {
  for (const auto& [line, reason] : std::vector<std::pair<std::string, std::string>>{
           {"{\"prompt\": \"a\"}", "lines.jsonl: byte 41: the object has no key \"completion\""},
           {"{\"prompt\": 1, \"completion\": \"b\"}", "the value of \"prompt\" is no string"},
           {"{\"prompt\": \"a\", \"prompt\": \"a\"}", "the key \"prompt\" twice"},
           {"[1]", "no JSON object"},
           {"{\"prompt\": \"a\"", "syntax error"}}) {
    EXPECT_EQ(Open("{\"prompt\": \"a\", \"completion\": \"bcdefgh\"}\n" + line, 5), nullptr)
        << line;
    EXPECT_THAT(std::string(status_.message()), HasSubstr(reason)) << line;
  }
  EXPECT_EQ(Open(" \n\n", 5), nullptr);
  EXPECT_THAT(std::string(status_.message()), HasSubstr("holds no line"));
}

TEST_F(PromptFile, TakesATokenizersStartAndEnd) {
  sources_.root = scratch_.path();
  sources_.tokenizer = "llama3.json";
  scratch_.Write("llama3.json", GoldenTokenizerJson("llama3").dump());
  const Tokenizer tokenizer = GoldenTokenizer("llama3");
  const auto sequences = Open(
      "{\"prompt\": \"the end\", \"completion\": \" of it\"}\n"
      "{\"prompt\": \"the end\", \"completion\": \" of it<|end_of_text|>\"}\n",
      32, tokenizer.vocab());
  ASSERT_NE(sequences, nullptr) << status_;
  std::vector<TokenId> expected = tokenizer.model().before_text;
  ASSERT_EQ(expected.size(), 1u);
  Encoder encoder(tokenizer);
  encoder.Append("the end", expected);
  const size_t prompt = expected.size();
  encoder.Append(" of it", expected);
  expected.push_back(*tokenizer.FindAdded("<|end_of_text|>"));
  for (const int64_t line : {0, 1}) {
    const Sequence read = Read(*sequences, line);
    for (size_t i = 0; i + 1 < expected.size(); ++i) {
      EXPECT_EQ(read.inputs[i], static_cast<int32_t>(expected[i])) << i;
      EXPECT_EQ(read.targets[i], i + 1 < prompt ? -1 : static_cast<int32_t>(expected[i + 1])) << i;
    }
    EXPECT_EQ(read.targets[expected.size() - 1], -1);
  }
}

TEST_F(PromptFile, RefusesATokenOutsideOfTheVocabulary) {
  ASSERT_NE(Open("{\"prompt\": \"ab\", \"completion\": \"z\"}", 4), nullptr);
  const auto small = PromptSequences::Open(path_, 4, 'z');
  ASSERT_TRUE(small.ok());
  int32_t inputs[4], targets[4];
  EXPECT_TRUE(absl::IsOutOfRange((*small)->Fill(0, inputs, targets)));
}

// F46: whatever is changed in the file or cut from it is told or harmless.
TEST_F(PromptFile, DamageIsToldAndNeverRead) {
  ASSERT_NE(Open("{\"prompt\": \"ab\", \"completion\": \"cd\"}\n"
                 "{\"prompt\": \"abc\", \"completion\": \"d\"}\n",
                 4),
            nullptr);
  const std::string whole = ReadFile(path_);
  const auto read_all = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    const auto opened = PromptSequences::Open(path_, 4, 256);
    if (!opened.ok()) return opened.status();
    int32_t inputs[4], targets[4];
    for (int64_t i = 0; i < (*opened)->count(); ++i) {
      if (const absl::Status read = (*opened)->Fill(i, inputs, targets); !read.ok()) return read;
    }
    return absl::OkStatus();
  };
  ASSERT_TRUE(read_all(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(read_all(whole.substr(0, size)))) << size;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {1, 64, 128}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ bit);
      const absl::Status read = read_all(changed);
      EXPECT_TRUE(read.ok() || absl::IsDataLoss(read) || absl::IsOutOfRange(read) ||
                  absl::IsInvalidArgument(read))
          << read;
    }
  }
}

}  // namespace
}  // namespace sherd
