#include "worker/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/worker/tokenizer/tokenizers.h"

namespace sherd {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// The error's text for a golden tokenizer that was changed; "" when it is accepted.
std::string ErrorOf(const std::function<void(json&)>& change, const std::string& name = "gpt2") {
  json document = GoldenTokenizerJson(name);
  change(document);
  return std::string(ParseTokenizer(document.dump()).status().message());
}

TEST(ParseTokenizer, ReadsBothSpellingsOfMerges) {
  const std::string text = "The pretty words of the world, and their merges";
  const auto ids_of = [&](const json& document) {
    const auto tokenizer = ParseTokenizer(document.dump());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::vector<TokenId> ids;
    Encoder(*tokenizer).Append(text, ids);
    return ids;
  };
  json document = GoldenTokenizerJson("gpt2");
  const std::vector<TokenId> ids = ids_of(document);
  EXPECT_LT(ids.size(), text.size());
  json merges = document["model"]["merges"];
  document["model"]["merges"].insert(document["model"]["merges"].begin(), "#version: 0.2");
  EXPECT_EQ(ids_of(document), ids);
  for (json& merge : merges) {
    const std::string spelled = merge;
    const size_t space = spelled.find(' ');
    merge = {spelled.substr(0, space), spelled.substr(space + 1)};
  }
  document["model"]["merges"] = merges;
  EXPECT_EQ(ids_of(document), ids);
}

TEST(ParseTokenizer, KnowsWhatThePostProcessorPutsAroundATest) {
  const Tokenizer llama3 = GoldenTokenizer("llama3");
  EXPECT_THAT(llama3.model().before_text, ElementsAre(*llama3.FindAdded("<|begin_of_text|>")));
  EXPECT_TRUE(llama3.model().after_text.empty());
  EXPECT_TRUE(GoldenTokenizer("gpt2").model().before_text.empty());
  EXPECT_EQ(ErrorOf([](json& d) { d["post_processor"] = nullptr; }, "llama3"), "");
  EXPECT_THAT(
      ErrorOf(
          [](json& d) {
            d["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"][0] =
                99999;
          },
          "llama3"),
      HasSubstr("post_processor.processors[1].special_tokens.<|begin_of_text|>.ids[0] is "
                "99999: it is the id of no token"));
}

TEST(ParseTokenizer, NamesWhatItDoesNotSupportAndWhere) {
  const auto set = [](const char* path, json value) {
    return ErrorOf([&](json& d) { d[json::json_pointer(path)] = std::move(value); });
  };
  EXPECT_EQ(set("/version", "1.0"), "");
  EXPECT_EQ(set("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}), "");
  EXPECT_EQ(set("/model/unk_token", "x"), "");
  EXPECT_EQ(set("/model/dropout", 0.0), "");
  EXPECT_EQ(set("/model/continuing_subword_prefix", ""), "");
  EXPECT_THAT(set("/version", "2.0"), HasSubstr("version is \"2.0\""));
  EXPECT_THAT(set("/normalizer", {{"type", "NFC"}}), HasSubstr("normalizer.type is \"NFC\""));
  EXPECT_THAT(
      set("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}}),
      HasSubstr("normalizer.normalizers[0].type is \"Lowercase\""));
  EXPECT_THAT(set("/truncation", {{"max_length", 4}}), HasSubstr("truncation is an object"));
  EXPECT_THAT(set("/padding", {{"direction", "Left"}}), HasSubstr("padding is an object"));
  EXPECT_THAT(set("/pre_tokenizer", nullptr), HasSubstr("pre_tokenizer is absent"));
  EXPECT_THAT(set("/pre_tokenizer/type", "Metaspace"),
              HasSubstr("pre_tokenizer.type is \"Metaspace\""));
  EXPECT_THAT(set("/decoder", nullptr), HasSubstr("decoder.type is absent"));
  EXPECT_THAT(set("/model/type", "Unigram"), HasSubstr("model.type is \"Unigram\""));
  EXPECT_THAT(set("/model/dropout", 0.1), HasSubstr("model.dropout is 0.1"));
  EXPECT_THAT(set("/model/end_of_word_suffix", "</w>"), HasSubstr("model.end_of_word_suffix"));
  EXPECT_THAT(set("/model", 5), HasSubstr("model is 5: it must be an object"));
  EXPECT_THAT(set("/post_processor/type", "RobertaProcessing"),
              HasSubstr("post_processor.type is \"RobertaProcessing\""));
  const auto split = [](const char* member, json value) {
    return ErrorOf([&](json& d) { d["pre_tokenizer"]["pretokenizers"][0][member] = value; },
                   "llama3");
  };
  EXPECT_THAT(split("pattern", {{"Regex", "\\d+"}}),
              HasSubstr("pre_tokenizer.pretokenizers[0].pattern.Regex is \"\\d+\""));
  EXPECT_THAT(split("pattern", {{"String", " "}}), HasSubstr("pattern.Regex is absent"));
  EXPECT_THAT(split("behavior", "Removed"), HasSubstr("behavior is \"Removed\""));
  EXPECT_THAT(split("type", "Digits"), HasSubstr("pretokenizers[0].type is \"Digits\""));
}

TEST(ParseTokenizer, NamesTheEntryThatIsWrong) {
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["vocab"]["th"] = "x"; }),
              HasSubstr("model.vocab[\"th\"] is \"x\": it must be a whole number"));
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["vocab"]["th"] = 1 << 30; }),
              HasSubstr("model.vocab[\"th\"] is 1073741824"));
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["vocab"]["\x1b[2J"] = "x"; }),
              HasSubstr("model.vocab[\"\\x1b[2J\"] is \"x\""));
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["vocab"]["zzzzz"] = 3; }),
              HasSubstr("is 3: it is the id of another token"));
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["vocab"].erase("Ġ"); }),
              HasSubstr("model.vocab has no token for the byte 0x20"));
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["merges"][7] = "a b c"; }),
              HasSubstr("model.merges[7] is \"a b c\": it must have two parts"));
  EXPECT_THAT(ErrorOf([](json& d) {
                d["model"]["merges"][7] = {"a", "b"};
              }),
              HasSubstr("model.merges[7] is a list: it must be written as the first one"));
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["merges"][7] = "q qqq"; }),
              HasSubstr("model.merges[7] is \"q qqq\": it needs the token \"qqq\""));
  EXPECT_THAT(ErrorOf([](json& d) { d["model"]["merges"][7] = d["model"]["merges"][3]; }),
              HasSubstr("it is there a second time"));
  EXPECT_THAT(ErrorOf([](json& d) { d["added_tokens"][0]["id"] = 9000; }),
              HasSubstr("added_tokens[0].id is 9000: it must be"));
  EXPECT_THAT(ErrorOf([](json& d) { d["added_tokens"][0].erase("lstrip"); }),
              HasSubstr("added_tokens[0].lstrip is absent"));
  EXPECT_THAT(ErrorOf([](json& d) { d["added_tokens"][0]["content"] = std::string(600, 'x'); }),
              HasSubstr("added_tokens[0].content"));
  EXPECT_THAT(ErrorOf([](json& d) { d["added_tokens"].push_back(d["added_tokens"][0]); }),
              HasSubstr("added_tokens[1].content"));
}

TEST(ParseTokenizer, IsBounded) {
  const auto error_of = [](const std::string& text) {
    return std::string(ParseTokenizer(text).status().message());
  };
  EXPECT_THAT(error_of(""), HasSubstr("syntax error at byte"));
  EXPECT_THAT(error_of("[]"), HasSubstr("the file is a list: it must be an object"));
  EXPECT_THAT(error_of(std::string(100000, '[')), HasSubstr("more than 12 levels"));
  EXPECT_THAT(error_of("{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}"),
              HasSubstr("the key \"a\" twice"));
}

TEST(ParseTokenizer, WhatIsAcceptedCanBeUsed) {
  // Small, so that changes hit all its parts.
  json document = GoldenTokenizerJson("llama3");
  document["model"]["merges"].get_ref<json::array_t&>().resize(5);
  const std::string valid = document.dump();
  std::mt19937_64 generator(1);
  int accepted = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string text = valid;
    for (size_t changes = 1 + generator() % 3; changes > 0; --changes) {
      const size_t at = generator() % text.size();
      if (generator() % 2 == 0) {
        text[at] = "{}[]\",:0123456789-truefalsn"[generator() % 27];
      } else {
        text.erase(at, generator() % 12);
      }
    }
    const auto tokenizer = ParseTokenizer(text);
    if (!tokenizer.ok()) continue;
    ++accepted;
    std::vector<TokenId> ids;
    Encoder(*tokenizer).Append("the wonderful <|eot_id|> \xFF\n words", ids);
    for (const TokenId id : ids) ASSERT_LT(id, tokenizer->vocab());
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace sherd
