#include "worker/sample/sample.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/utf8.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/published_weights.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/training_state.h"
#include "worker/model/init.h"
#include "worker/sample/sample_command.h"
#include "worker/sample/token_sampler.h"

namespace sherd {
namespace {

using testing::HasSubstr;

class SampleTest : public testing::Test {
 protected:
  SampleTest() {
    shape_.layers = 1;
    shape_.hidden = 8;
    shape_.heads = shape_.kv_heads = 2;
    shape_.ffn = 16;
    shape_.vocab = 256;
    shape_.context = 8;
    SaveWeights("bytes");
  }

  // Of a positive `stddev`, matrices have that instead of their usual one.
  void SaveWeights(const std::string& tokenizer, double stddev = 0) {
    std::deque<std::vector<float>> values;
    PublishWeights(directory_, {"job", 1, 1, shape_, tokenizer}, BuildInventory(shape_),
                   [&](const Parameter& parameter) {
                     std::vector<float>& tensor = values.emplace_back(parameter.elements);
                     Parameter drawn = parameter;
                     if (stddev > 0) drawn.init.stddev = stddev;
                     InitializeRange(drawn, 1, 0, parameter.elements, tensor.data());
                     return tensor.data();
                   });
  }

  // A training checkpoint of step 7 with the weights of SaveWeights.
  void SaveTraining(const std::string& root) {
    const Inventory inventory = BuildInventory(shape_);
    std::deque<std::vector<float>> values;
    std::vector<TensorRange> ranges;
    for (const Unit& unit : inventory.units) {
      std::vector<float>& weights = values.emplace_back(unit.elements);
      for (const Parameter& parameter : unit.parameters) {
        InitializeRange(parameter, 1, 0, parameter.elements, weights.data() + parameter.offset);
      }
      const std::vector<float>& moments = values.emplace_back(unit.elements, 0.5f);
      AppendState(unit, {0, unit.elements}, {weights.data(), moments.data(), moments.data()},
                  ranges);
    }
    const auto files = MakePosixFileSystem();
    CheckpointInfo info{"job", 7, 1, shape_, "bytes"};
    info.training.emplace().train.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_COSINE);
    ASSERT_TRUE(WriteSave(*files, root, info, 0, 1, ranges).ok());
    ASSERT_TRUE(PublishSave(*files, root, info, 1, TrainingTensorsOf(inventory)).ok());
  }

  std::string Sample(const SampleOptions& changes) {
    SampleOptions options = changes;
    if (options.weights.empty()) options.weights = directory_;
    std::ostringstream out;
    status_ = RunSample(options, out);
    return out.str();
  }

  ModelShape shape_;
  const TemporaryDirectory root_;
  const std::string directory_ = root_ / "weights";
  absl::Status status_;
};

TEST_F(SampleTest, StartsWithThePromptAndRunsPastTheContext) {
  const std::string text = Sample({.prompt = "once upon", .tokens = 30});
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(text.size(), 39u);
  EXPECT_EQ(text.substr(0, 9), "once upon");
  // An untrained model draws any byte: what comes is printed as it is.
  EXPECT_TRUE(std::any_of(text.begin(), text.end(), [](char c) { return c < 0; }));
}

TEST_F(SampleTest, ATerminalGetsNoControlCharacters) {
  const std::string raw = Sample({.tokens = 300});
  const auto is_control = [](char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f;
  };
  ASSERT_TRUE(std::any_of(raw.begin(), raw.end(), is_control));
  const std::string shown = Sample({.tokens = 300, .for_terminal = true});
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_FALSE(std::any_of(shown.begin(), shown.end(), is_control)) << shown;
  EXPECT_FALSE(FindInvalidUtf8(shown).has_value()) << shown;
}

// What the command prints into a terminal, and into anything else.
TEST_F(SampleTest, TheCommandKnowsATerminal) {
  int terminal = -1;
  int side = -1;
  ASSERT_EQ(openpty(&terminal, &side, nullptr, nullptr, nullptr), 0);
  const int output = dup(STDOUT_FILENO);
  const auto sample_to = [&](int descriptor) {
    std::string tokens = "--tokens=300";
    std::string command = "sample";
    std::string directory = directory_;
    char* arguments[] = {command.data(), directory.data(), tokens.data()};
    dup2(descriptor, STDOUT_FILENO);
    const int code = SampleMain(3, arguments);
    dup2(output, STDOUT_FILENO);
    return code;
  };
  EXPECT_EQ(sample_to(side), 0);
  std::string shown(4096, '\0');
  shown.resize(static_cast<size_t>(std::max<ssize_t>(0, read(terminal, shown.data(), 4096))));
  EXPECT_THAT(shown, HasSubstr("\\x"));
  const std::string path = root_.Write("sampled", "");
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(sample_to(file), 0);
  EXPECT_EQ(ReadFile(path), Sample({.prompt = "", .tokens = 300}) + "\n");
  for (const int descriptor : {terminal, side, output, file}) close(descriptor);
}

TEST_F(SampleTest, TheCommandsCodeTellsUnusableWeights) {
  const auto code_of = [](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    return SampleMain(static_cast<int>(arguments.size()), arguments.data());
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(code_of({"sample", root_ / "nowhere"}), 2);
  EXPECT_EQ(code_of({"sample", directory_, "--tokenizer", root_ / "none.json"}), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("none.json does not exist\n"));
  const std::string shard = directory_ + "/shard-00001-of-00001.safetensors";
  root_.Write("weights/shard-00001-of-00001.safetensors", ReadFile(shard) + "x");
  EXPECT_EQ(code_of({"sample", directory_}), 2);
}

TEST_F(SampleTest, HintsAtTheWeightsThatARunPutOut) {
  Sample({.weights = root_.path()});
  EXPECT_THAT(std::string(status_.message()),
              testing::EndsWith("; did you mean " + root_.path() + "/weights?"));
}

// As imported from a folder without a tokenizer.json.
TEST_F(SampleTest, SaysWhatToGiveWhereNobodyKnowsTheTokens) {
  SaveWeights("bytes");
  const std::string text = Sample({.tokens = 20});
  SaveWeights("unknown");
  Sample({.tokens = 20});
  EXPECT_THAT(std::string(status_.message()), HasSubstr("give --tokenizer bytes, or --tokenizer "
                                                        "PATH"));
  EXPECT_EQ(Sample({.tokenizer = "bytes", .tokens = 20}), text);
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(SampleTest, TheSeedDecidesTheText) {
  const std::string text = Sample({.tokens = 20, .seed = 1});
  EXPECT_EQ(text, Sample({.tokens = 20, .seed = 1, .threads = 2}));
  EXPECT_NE(text, Sample({.tokens = 20, .seed = 2}));
}

TEST_F(SampleTest, ColdSamplesAreTheLikeliestWhateverTheSeed) {
  const std::string text = Sample({.tokens = 20, .temperature = 0, .seed = 1});
  EXPECT_EQ(text, Sample({.tokens = 20, .temperature = 0, .seed = 2}));
  EXPECT_EQ(text, Sample({.tokens = 20, .temperature = 1, .top_k = 1, .seed = 3}));
}

// The checkpoint says which architecture it is of, and everything that its text depends on.
TEST_F(SampleTest, TakesALlamaWithItsRotaryEmbedding) {
  shape_.arch = Architecture::kLlama;
  shape_.kv_heads = 1;
  shape_.tie_embeddings = false;
  // Values of 0.02 around zero leave every token about as likely, whatever its position.
  const auto sample = [&] {
    SaveWeights("bytes", /*stddev=*/0.5);
    return Sample({.prompt = "once upon", .tokens = 40, .seed = 1});
  };
  const std::string plain = sample();
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(plain.size(), 49u);
  EXPECT_EQ(plain, sample());
  shape_.rotary.theta = 2;
  const std::string turned = sample();
  EXPECT_NE(turned, plain);
  shape_.rotary.factor = 8;
  shape_.rotary.original_context = 4;
  EXPECT_NE(sample(), turned);
}

// While a job trains its newest checkpoint stands in for the weights that it will leave; the
// optimizer's state is left out.
TEST_F(SampleTest, TakesAJobsDirectory) {
  const std::string text = Sample({.tokens = 20});
  ASSERT_TRUE(status_.ok()) << status_;
  const std::string root = root_ / "job";
  SaveTraining(root);
  EXPECT_EQ(Sample({.weights = root, .tokens = 20}), text);
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(Sample({.weights = StepDirectory(root, 7, 1), .tokens = 20}), text);
  std::filesystem::rename(directory_, FinalDirectory(root));
  std::filesystem::remove_all(StepDirectory(root, 7, 1));
  EXPECT_EQ(Sample({.weights = root, .tokens = 20}), text);
}

TEST_F(SampleTest, SaysWhatIsWrong) {
  Sample({.temperature = -1});
  EXPECT_THAT(std::string(status_.message()), HasSubstr("temperature"));
  Sample({.temperature = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_TRUE(absl::IsInvalidArgument(status_));
  Sample({.weights = root_ / "nowhere"});
  EXPECT_THAT(std::string(status_.message()), HasSubstr(root_ / "nowhere"));
  const std::string shard = directory_ + "/shard-00001-of-00001.safetensors";
  root_.Write("weights/shard-00001-of-00001.safetensors", ReadFile(shard) + "x");
  Sample({});
  EXPECT_THAT(std::string(status_.message()), HasSubstr(shard));
  SaveWeights("/some/tokenizer.json");
  Sample({});
  EXPECT_THAT(std::string(status_.message()), HasSubstr(directory_));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("--tokenizer"));
}

TEST_F(SampleTest, PrintsTheTextOfATokenizersTokens) {
  const std::string tokenizer = std::string(SHERD_GOLDEN_DIR) + "/tokenizer/gpt2.json";
  // More ids than the tokenizer has, as vocabularies are padded.
  shape_.vocab = 1536;
  SaveWeights("bytes");
  const std::string text = Sample({.tokenizer = tokenizer, .prompt = "once upon", .tokens = 30});
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(text.substr(0, 9), "once upon");
  // An untrained model draws any token; most have some bytes.
  EXPECT_GT(text.size(), 9u + 45u);
  EXPECT_EQ(Sample({.tokenizer = tokenizer, .prompt = "once upon", .tokens = 30, .threads = 2}),
            text);
}

// What the job was trained with needs not be said again; what is said goes before it.
TEST_F(SampleTest, TheWeightsNameTheirTokenizer) {
  const std::string tokenizer = std::string(SHERD_GOLDEN_DIR) + "/tokenizer/gpt2.json";
  shape_.vocab = 1536;
  SaveWeights(tokenizer);
  const std::string text = Sample({.prompt = "once upon", .tokens = 30});
  ASSERT_TRUE(status_.ok()) << status_;
  SaveWeights("/some/tokenizer.json");
  EXPECT_EQ(Sample({.tokenizer = tokenizer, .prompt = "once upon", .tokens = 30}), text);
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(SampleTest, RefusesATokenizerThatDoesNotFit) {
  const std::string tokenizer = std::string(SHERD_GOLDEN_DIR) + "/tokenizer/gpt2.json";
  Sample({.tokenizer = tokenizer});
  EXPECT_THAT(std::string(status_.message()), HasSubstr("has 1501 ids, the model 256"));
  Sample({.tokenizer = root_.Write("bad.json", "{}")});
  EXPECT_THAT(std::string(status_.message()), HasSubstr("bad.json: pre_tokenizer is absent"));
}

TEST(TokenSampler, DrawsInProportionToTheSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), std::log(2.0f),
                                     -std::numeric_limits<float>::infinity()};
  TokenSampler sampler(1.0, 0, 7);
  std::vector<int> counts(4);
  for (int i = 0; i < 8000; ++i) ++counts[static_cast<size_t>(sampler.Draw(logits))];
  // Five standard deviations of a binomial are at most 5·√(8000/4) = 224.
  EXPECT_NEAR(counts[0], 1000, 224);
  EXPECT_NEAR(counts[1], 5000, 224);
  EXPECT_NEAR(counts[2], 2000, 224);
  EXPECT_EQ(counts[3], 0);
}

TEST(TokenSampler, TopKLeavesOutTheRest) {
  const std::vector<float> logits = {0, 1, 1, 0.5};
  TokenSampler sampler(10.0, 2, 7);
  std::set<int64_t> drawn;
  for (int i = 0; i < 200; ++i) drawn.insert(sampler.Draw(logits));
  EXPECT_EQ(drawn, (std::set<int64_t>{1, 2}));
}

TEST(TokenSampler, SurvivesLogitsThatAreNoNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TokenSampler sampler(1.0, 0, 7);
  EXPECT_EQ(sampler.Draw(std::vector<float>{nan, 1.0f, nan}), 1);
  EXPECT_EQ(sampler.Draw(std::vector<float>{nan, nan}), 0);
}

}  // namespace
}  // namespace sherd
