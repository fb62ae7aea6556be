// Folders that are damaged, hostile or of models that are not supported: what is said, and of which
// file.
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/pretrained/golden_folder.h"
#include "worker/pretrained/pretrained_folder.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Refusals : public testing::Test {
 protected:
  // What opening the folder is refused with.
  std::string Error(const std::string& root = "") {
    const auto opened = PretrainedFolder::Open(root, root.empty() ? folder_ : "folder");
    if (opened.ok()) return "accepted";
    EXPECT_NE(opened.status().code(), absl::StatusCode::kInternal);
    return std::string(opened.status().message());
  }
  void EditConfig(const std::string& from, const std::string& to) {
    const std::string text = ReadFile(folder_ + "/config.json");
    const std::string edited = absl::StrReplaceAll(text, {{from, to}});
    ASSERT_NE(text, edited) << from;
    scratch_.Write("folder/config.json", edited);
  }
  RawTensors Tensors() { return ReadSafetensors(folder_ + "/model.safetensors"); }
  void Put(const RawTensors& tensors) { WriteSafetensors(folder_ + "/model.safetensors", tensors); }
  void Index(const std::string& weight_map) {
    std::filesystem::rename(folder_ + "/model.safetensors", folder_ + "/part.safetensors");
    scratch_.Write("folder/model.safetensors.index.json",
                   "{\"metadata\": {}, \"weight_map\": " + weight_map + "}");
  }

  const TemporaryDirectory scratch_;
  const std::string folder_ = scratch_ / "folder";
};

// F50: names with the shapes that were expected, as the user's file would call them.
TEST_F(Refusals, NameWhatIsMissingAndWhatIsTooMuch) {
  CopyGolden("gpt2_fp32", folder_);
  RawTensors tensors = Tensors();
  const RawTensor weight = tensors.at("transformer.h.1.mlp.c_fc.weight");
  tensors.erase("transformer.h.1.mlp.c_fc.weight");
  Put(tensors);
  EXPECT_THAT(Error(), AllOf(HasSubstr("folder: tensors of the model"),
                             HasSubstr("missing: transformer.h.1.mlp.c_fc.weight [12, 48]")));
  tensors["transformer.h.2.mlp.c_fc.weight"] = weight;
  tensors["score.weight"] = {"F32", {1, 2}, std::string(8, '\0')};
  Put(tensors);
  EXPECT_THAT(Error(), AllOf(HasSubstr("does not have: score.weight [1, 2], "),
                             HasSubstr("transformer.h.2.mlp.c_fc.weight [12, 48]")));
  tensors.clear();
  tensors["transformer.ln_f.bias"] = {"F32", {12}, std::string(48, '\0')};
  Put(tensors);
  EXPECT_THAT(Error(), HasSubstr("transformer.h.0.ln_1.bias [12] and 23 more"));
}

TEST_F(Refusals, NameShapesAndTypesThatAreWrong) {
  CopyGolden("gpt2_fp32", folder_);
  const RawTensors tensors = Tensors();
  RawTensors other = tensors;
  // As a framework that stores linear weights as (out, in) would have it.
  std::swap(other["transformer.h.0.mlp.c_fc.weight"].shape[0],
            other["transformer.h.0.mlp.c_fc.weight"].shape[1]);
  Put(other);
  EXPECT_THAT(Error(), AllOf(HasSubstr("model.safetensors: tensor"),
                             HasSubstr("[48, 12] where config.json asks for [12, 48]")));
  other = tensors;
  other["transformer.ln_f.bias"] = {"F64", {12}, std::string(96, '\0')};
  Put(other);
  EXPECT_THAT(Error(), HasSubstr("type F64, which is not supported: F32, BF16 and F16 are"));
  other = tensors;
  other["ln_f.bias"] = other["transformer.ln_f.bias"];
  Put(other);
  EXPECT_THAT(Error(), HasSubstr("are the same tensor of the model"));
}

// F5: an untied head that the configuration ties would be lost without a word.
TEST_F(Refusals, TellOfAHeadThatIsTiedButDiffers) {
  CopyGolden("llama_tied_fp16", folder_);
  ASSERT_EQ(Error(), "accepted");
  RawTensors tensors = Tensors();
  tensors["lm_head.weight"].bytes[100] ^= 1;
  Put(tensors);
  const auto folder = PretrainedFolder::Open("", folder_);
  ASSERT_TRUE(folder.ok());
  const int64_t elements = 21 * 16;
  std::vector<float> values(static_cast<size_t>(elements));
  const TensorTarget embedding{
      "model.embed_tokens.weight", {21, 16}, {0, 16}, 0, elements, values.data()};
  const absl::Status status = folder->Load({&embedding, 1}, 1).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"lm_head.weight\" differs from \"model.embed_tokens.weight\""));
}

TEST_F(Refusals, FilesThatAreCutOff) {
  CopyGolden("llama_tied_fp16", folder_);
  const std::string path = folder_ + "/model.safetensors";
  const auto bytes = std::filesystem::file_size(path);
  for (const uintmax_t left :
       {uintmax_t{0}, uintmax_t{7}, uintmax_t{8}, uintmax_t{300}, bytes - 1}) {
    std::filesystem::resize_file(path, left);
    EXPECT_THAT(Error(), HasSubstr("model.safetensors is not a valid safetensors file: ")) << left;
  }
  std::filesystem::remove(path);
  EXPECT_THAT(Error(), HasSubstr("holds neither model.safetensors nor model.safetensors.index"));
  scratch_.Write("folder/pytorch_model.bin", "x");
  EXPECT_THAT(Error(), HasSubstr("pytorch_model.bin is not read"));
  std::filesystem::remove(folder_ + "/config.json");
  EXPECT_THAT(Error(), HasSubstr("folder/config.json does not exist"));
}

// Section 11: an index leads nowhere but to files of its own folder.
TEST_F(Refusals, IndexesThatLeadElsewhere) {
  for (const char* map :
       {"{\"lm_head.weight\": \"../part.safetensors\"}",
        "{\"lm_head.weight\": \"/etc/part.safetensors\"}",
        "{\"lm_head.weight\": \".hidden.safetensors\"}", "{\"lm_head.weight\": \"\"}",
        "{\"lm_head.weight\": \"config.json\"}", "{\"lm_head.weight\": 3}"}) {
    std::filesystem::remove_all(folder_);
    CopyGolden("llama_tied_fp16", folder_);
    Index(map);
    EXPECT_THAT(Error(), AllOf(HasSubstr("index.json: it says that \"lm_head.weight\" is in "),
                               HasSubstr("not the name of a .safetensors file of the folder")))
        << map;
  }
}

TEST_F(Refusals, IndexesThatContradictTheirFiles) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"{\"lm_head.weight\": \"part.safetensors\"}", "it does not say that \"model."},
      {"{\"lm_head.weight\": \"other.safetensors\"}", "other.safetensors does not exist"},
      {"{}", "its \"weight_map\" is empty"},
      {"[]", "it has no object \"weight_map\""},
      {"{", "its JSON has a syntax error"}};
  for (const auto& [map, error] : cases) {
    std::filesystem::remove_all(folder_);
    CopyGolden("llama_tied_fp16", folder_);
    Index(map);
    EXPECT_THAT(Error(), HasSubstr(error)) << map;
  }
}

// What is believed of a folder takes bounded memory, however many files it names.
TEST_F(Refusals, HeadersWithoutEnd) {
  CopyGolden("llama_tied_fp16", folder_);
  const std::string name(15 << 20, 'n');
  std::string map = "{";
  for (const char* part : {"a", "b", "c", "d", "e"}) {
    WriteSafetensors(folder_ + "/" + part + ".safetensors", {{name + part, {"F32", {0}, ""}}});
    map += (map.size() > 1 ? ", \"" : "\"") + name + part + "\": \"" + part + ".safetensors\"";
  }
  Index(map + "}");
  EXPECT_THAT(Error(), HasSubstr("index.json is larger than the"));
  std::filesystem::remove(folder_ + "/model.safetensors.index.json");
  scratch_.Write("folder/model.safetensors.index.json",
                 "{\"weight_map\": {\"1\": \"a.safetensors\", \"2\": \"b.safetensors\", \"3\": "
                 "\"c.safetensors\", \"4\": \"d.safetensors\", \"5\": \"e.safetensors\"}}");
  EXPECT_THAT(Error(), HasSubstr("headers of the weights have more than"));
}

TEST_F(Refusals, FoldersOutsideOfTheRoot) {
  const TemporaryDirectory elsewhere;
  CopyGolden("llama_tied_fp16", folder_);
  EXPECT_EQ(Error(scratch_.path()), "accepted");
  std::filesystem::copy_file(folder_ + "/model.safetensors", elsewhere / "weights");
  std::filesystem::remove(folder_ + "/model.safetensors");
  std::filesystem::create_symlink(elsewhere / "weights", folder_ + "/model.safetensors");
  EXPECT_EQ(Error(), "accepted");
  EXPECT_THAT(Error(scratch_.path()), HasSubstr("folder/model.safetensors"));
  EXPECT_FALSE(PretrainedFolder::Open(scratch_.path(), "../" + folder_).ok());
}

TEST_F(Refusals, ConfigurationsOfOtherModels) {
  CopyGolden("llama_untied_fp32", folder_);
  EditConfig("\"llama\"", "\"mistral\"");
  EXPECT_THAT(Error(),
              HasSubstr("folder/config.json: model_type \"mistral\" is not supported; supported: "
                        "gpt2, llama"));
}

// Whatever bytes are there, an answer comes, and never a crash.
TEST_F(Refusals, ComeForAnyBytes) {
  CopyGolden("llama_scaled_bf16_sharded", folder_);
  const std::string weights = ReadFile(folder_ + "/model.safetensors");
  const std::string config = ReadFile(folder_ + "/config.json");
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 400; ++trial) {
    std::string changed = trial % 2 == 0 ? weights : config;
    // The header is what is believed.
    const size_t end = trial % 2 == 0 ? 1800 : changed.size();
    for (int flips = 0; flips < 3; ++flips) changed[random() % end] = static_cast<char>(random());
    scratch_.Write("folder/model.safetensors", trial % 2 == 0 ? changed : weights);
    scratch_.Write("folder/config.json", trial % 2 == 0 ? config : changed);
    EXPECT_FALSE(Error().empty());
  }
}

}  // namespace
}  // namespace sherd
