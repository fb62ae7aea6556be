#pragma once

#include <string>

#include "common/check.h"
#include "nlohmann/json.hpp"
#include "tests/support/temporary_directory.h"
#include "worker/tokenizer/tokenizer_json.h"

namespace sherd {

// tests/golden/tokenizer/NAME.json; "flags" is gpt2 with other added tokens and prefix spaces.
inline nlohmann::json GoldenTokenizerJson(const std::string& name) {
  const std::string directory = std::string(SHERD_GOLDEN_DIR) + "/tokenizer/";
  nlohmann::json document = nlohmann::json::parse(ReadFile(directory + name + ".json"));
  if (name != "flags") return document;
  nlohmann::json base = GoldenTokenizerJson("gpt2");
  base.update(document);
  return base;
}

inline Tokenizer GoldenTokenizer(const std::string& name) {
  absl::StatusOr<Tokenizer> tokenizer = ParseTokenizer(GoldenTokenizerJson(name).dump());
  SHERD_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

}  // namespace sherd
