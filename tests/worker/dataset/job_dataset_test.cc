#include "worker/dataset/job_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"
#include "tests/worker/tokenizer/tokenizers.h"
#include "worker/pack/pack.h"

namespace sherd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JobDatasetTest : public testing::Test {
 protected:
  JobDatasetTest() {
    spec_.mutable_model()->set_vocab(2000);
    spec_.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
    spec_.mutable_data()->set_tokenizer("bytes");
    spec_.mutable_train()->set_seq_len(8);
    spec_.mutable_train()->set_micro_batch(1);
    spec_.mutable_train()->set_global_batch(4);
    spec_.mutable_train()->set_seed(3);
    options_.data_root = root_ / "data";
    options_.cache_directory = root_ / "out/tokens";
  }
  void Train(const std::string& name, const std::string& text, double weight = 0) {
    root_.Write("data/" + name, text);
    spec_.mutable_data()->add_train(name);
    if (weight > 0) spec_.mutable_data()->add_train_weights(weight);
  }
  JobDataset Open() {
    absl::StatusOr<JobDataset> opened = OpenJobDataset(spec_, options_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  // The first inputs of the samples of the first steps.
  std::vector<int32_t> Firsts(const JobDataset& dataset, int64_t steps) const {
    std::vector<int32_t> firsts;
    int32_t inputs[8], targets[8];
    for (int64_t step = 1; step <= steps; ++step) {
      for (int64_t g = 0; g < 4; ++g) {
        EXPECT_TRUE(dataset.train.FillMicroBatch(step, g, inputs, targets).ok());
        firsts.push_back(inputs[0]);
      }
    }
    return firsts;
  }
  int64_t CachedFiles() const {
    std::error_code none;
    int64_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(options_.cache_directory, none)) {
      files += entry.is_regular_file() ? 1 : 0;
    }
    return files;
  }

  const TemporaryDirectory root_;
  v1::JobSpec spec_;
  DatasetOptions options_;
};

std::string Repeated(char letter, size_t times) { return std::string(times, letter); }

// F48: so many samples of each as its weight says, whatever their sizes.
TEST_F(JobDatasetTest, DrawsFromSourcesByWeight) {
  Train("a.txt", Repeated('a', 100), 3);
  Train("b.txt", Repeated('b', 1000), 1);
  const JobDataset dataset = Open();
  EXPECT_EQ(dataset.corpus_tokens, 1100);
  std::map<int32_t, int> counts;
  for (const int32_t first : Firsts(dataset, 25)) ++counts[first];
  EXPECT_EQ(counts['a'], 75);
  EXPECT_EQ(counts['b'], 25);
  EXPECT_EQ(CachedFiles(), 0);
}

TEST_F(JobDatasetTest, WithoutWeightsEverySequenceComesOnceAPass) {
  Train("a.txt", Repeated('a', 80));
  Train("b.txt", Repeated('b', 81));
  std::map<int32_t, int> counts;
  for (const int32_t first : Firsts(Open(), 5)) ++counts[first];
  EXPECT_EQ(counts['a'], 10);
  EXPECT_EQ(counts['b'], 10);
}

// What is held out of each source is evaluated on, whole, and never trained on.
TEST_F(JobDatasetTest, HoldsOutAPartOfEverySource) {
  std::string letters;
  for (char letter = 'a'; letter <= 't'; ++letter) letters += Repeated(letter, 8);
  Train("a.txt", letters + "z", 1);
  Train("b.txt", letters + "z", 1);
  spec_.mutable_data()->set_validation_split(0.25);
  const JobDataset dataset = Open();
  ASSERT_TRUE(dataset.eval.has_value());
  EXPECT_EQ(dataset.eval->micro_batches(), 10);
  std::multiset<int32_t> all;
  for (const int32_t first : Firsts(dataset, 30 / 4 + 1)) all.insert(first);
  std::multiset<int32_t> held_out;
  int32_t inputs[8], targets[8];
  for (int64_t index = 0; index < 10; ++index) {
    ASSERT_TRUE(dataset.eval->FillMicroBatch(index, inputs, targets).ok());
    held_out.insert(inputs[0]);
    EXPECT_GE(targets[7], 0);
  }
  for (char letter = 'a'; letter <= 't'; ++letter) {
    EXPECT_EQ(held_out.count(letter) < 2, all.count(letter) > 0) << letter;
  }
}

TEST_F(JobDatasetTest, TextBecomesTheTokensThatPackingMakes) {
  const std::string text = "Once upon a time there was a shard.\nIt was kept by a rank.\n";
  root_.Write("data/tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  spec_.mutable_data()->set_tokenizer("tokenizer.json");
  Train("a.txt", text);
  Train("b.txt", text + text);
  const JobDataset dataset = Open();

  PackOptions pack;
  pack.tokenizer = root_ / "data/tokenizer.json";
  pack.files = {root_ / "data/a.txt", root_ / "data/b.txt"};
  pack.out = root_ / "data/packed.bin";
  const auto summary = Pack(pack, [](const PackProgress&) {});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(dataset.corpus_tokens, summary->tokens);
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_LLMC);
  spec_.mutable_data()->clear_train();
  spec_.mutable_data()->add_train("packed.bin");
  EXPECT_EQ(Firsts(dataset, 6), Firsts(Open(), 6));
}

// Whoever comes later tokenizes nothing; of other text nothing old is taken.
TEST_F(JobDatasetTest, TokensAreMadeOnce) {
  root_.Write("data/tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  spec_.mutable_data()->set_tokenizer("tokenizer.json");
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_JSONL);
  Train("a.jsonl", "{\"text\": \"the shard of a rank is kept by the rank then gathered\"}\n");
  const int64_t tokens = Open().corpus_tokens;
  EXPECT_EQ(CachedFiles(), 1);
  options_.stopped = [] { return true; };
  EXPECT_EQ(Open().corpus_tokens, tokens);
  options_.stopped = nullptr;
  EXPECT_EQ(CachedFiles(), 1);
  root_.Write("data/a.jsonl",
              "{\"text\": \"the shard of a rank is kept by the rank then gathered, they say\"}\n");
  EXPECT_GT(Open().corpus_tokens, tokens);
  EXPECT_EQ(CachedFiles(), 2);
}

TEST_F(JobDatasetTest, ToldToStopItTokenizesNoFurther) {
  root_.Write("data/tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  spec_.mutable_data()->set_tokenizer("tokenizer.json");
  std::string text;
  while (text.size() < (size_t{24} << 20)) text += "the shard of a rank is kept 12345.\n";
  Train("a.txt", text);
  options_.stopped = [] { return true; };
  EXPECT_TRUE(absl::IsAborted(OpenJobDataset(spec_, options_).status()));
  EXPECT_EQ(CachedFiles(), 0);
}

// F6: the count of a step's targets is that of its micro-batches.
TEST_F(JobDatasetTest, PromptsAreCountedAsTheyAreMasked) {
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_PROMPT_COMPLETION);
  std::string lines;
  for (int i = 0; i < 13; ++i) {
    absl::StrAppend(&lines, "{\"prompt\": \"", std::string(static_cast<size_t>(i % 10), 'p'),
                    "\", \"completion\": \"", std::string(static_cast<size_t>(i % 3), 'c'),
                    "\"}\n");
  }
  Train("a.jsonl", lines);
  const JobDataset dataset = Open();
  // Of line 9 the completion would begin behind the ninth token; line 0 is a single token.
  EXPECT_THAT(dataset.notes, ElementsAre(HasSubstr("data.train: 2 of 13 lines are left out")));
  int32_t inputs[8], targets[8];
  for (int64_t step = 1; step <= 5; ++step) {
    int64_t counted = 0;
    for (int64_t g = 0; g < 4; ++g) {
      ASSERT_TRUE(dataset.train.FillMicroBatch(step, g, inputs, targets).ok());
      for (const int32_t target : targets) counted += target >= 0 ? 1 : 0;
    }
    EXPECT_EQ(dataset.train.Targets(step), counted);
    EXPECT_LT(counted, 4 * 8);
  }
}

TEST_F(JobDatasetTest, FilesOutsideOfTheRootAreRefused) {
  root_.Write("secret.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  std::filesystem::create_directories(root_ / "data");
  std::filesystem::create_symlink(root_ / "secret.jsonl", root_ / "data/link.jsonl");
  root_.Write("data/tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  for (const auto format : {v1::DATA_FORMAT_PROMPT_COMPLETION, v1::DATA_FORMAT_TEXT}) {
    spec_.mutable_data()->set_format(format);
    spec_.mutable_data()->set_tokenizer("tokenizer.json");
    for (const char* const path : {"link.jsonl", "../secret.jsonl"}) {
      spec_.mutable_data()->clear_train();
      spec_.mutable_data()->add_train(path);
      EXPECT_TRUE(absl::IsPermissionDenied(OpenJobDataset(spec_, options_).status())) << path;
    }
  }
}

}  // namespace
}  // namespace sherd
