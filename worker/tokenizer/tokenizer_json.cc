#include "worker/tokenizer/tokenizer_json.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/bounded_json.h"
#include "common/status_macros.h"
#include "worker/tokenizer/json_place.h"
#include "worker/tokenizer/vocabulary_json.h"

namespace sherd {
namespace {

constexpr JsonLimits kLimits = {.depth = 12, .values = 1 << 23};

absl::Status CheckNull(const JsonPlace& place) {
  return place.is_null() ? absl::OkStatus() : place.Error("is not supported; set it to null");
}

// The steps of a Sequence, or the one step that `place` is.
absl::StatusOr<std::vector<JsonPlace>> StepsOf(const JsonPlace& place, absl::string_view list) {
  if (place.is_null()) return std::vector<JsonPlace>();
  SHERD_RETURN_IF_ERROR(place.CheckObject());
  if (place.Member("type").value() != "Sequence") return std::vector<JsonPlace>{place};
  const JsonPlace members = place.Member(list);
  SHERD_ASSIGN_OR_RETURN(const size_t size, members.Size());
  std::vector<JsonPlace> steps;
  for (size_t i = 0; i < size; ++i) steps.push_back(members.Element(i));
  return steps;
}

absl::Status ReadNormalizer(const JsonPlace& place) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<JsonPlace> steps, StepsOf(place, "normalizers"));
  if (steps.empty()) return absl::OkStatus();
  return steps[0].Member("type").Error("is not supported: the normalizer must be null");
}

absl::Status ReadSplit(const JsonPlace& place, TokenizerModel& model) {
  const JsonPlace regex = place.Member("pattern").Member("Regex");
  SHERD_ASSIGN_OR_RETURN(const std::string text, regex.String());
  const std::optional<SplitPattern> pattern = FindSplitPattern(text);
  if (!pattern.has_value()) {
    return regex.Error("is not supported: it must be the pattern of GPT-2 or of Llama 3");
  }
  const JsonPlace behavior = place.Member("behavior");
  if (behavior.value() != "Isolated") return behavior.Error("must be Isolated to be supported");
  // Isolated, matches and what lies between them are alike.
  SHERD_RETURN_IF_ERROR(place.Member("invert").BoolOr(false).status());
  model.splits.push_back(*pattern);
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const JsonPlace& place, TokenizerModel& model) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<JsonPlace> steps, StepsOf(place, "pretokenizers"));
  if (steps.empty()) return place.Error("must have a ByteLevel to be supported");
  for (size_t i = 0; i < steps.size(); ++i) {
    const JsonPlace type = steps[i].Member("type");
    const bool last = i + 1 == steps.size();
    if (!last && type.value() == "Split") {
      SHERD_RETURN_IF_ERROR(ReadSplit(steps[i], model));
    } else if (!last || type.value() != "ByteLevel") {
      return type.Error("is not supported here: Splits and one ByteLevel, the last, are");
    }
  }
  const JsonPlace& byte_level = steps.back();
  SHERD_ASSIGN_OR_RETURN(model.add_prefix_space, byte_level.Member("add_prefix_space").Bool());
  SHERD_ASSIGN_OR_RETURN(model.gpt2_split, byte_level.Member("use_regex").BoolOr(true));
  return absl::OkStatus();
}

absl::Status ReadDecoder(const JsonPlace& place) {
  const JsonPlace type = place.Member("type");
  if (type.value() == "ByteLevel") return absl::OkStatus();
  return type.Error("must be ByteLevel to be supported");
}

// The ids of one special token of a template.
absl::Status ReadTemplateToken(const JsonPlace& token, const JsonPlace& special_tokens,
                               const TokenizerModel& model, std::vector<TokenId>& ids) {
  SHERD_ASSIGN_OR_RETURN(const std::string name, token.Member("id").String());
  const JsonPlace list = special_tokens.Member(name).Member("ids");
  SHERD_ASSIGN_OR_RETURN(const size_t size, list.Size());
  for (size_t i = 0; i < size; ++i) {
    const JsonPlace id = list.Element(i);
    SHERD_ASSIGN_OR_RETURN(const TokenId value, id.Number(~TokenId{0}));
    if (value >= model.tokens.size() || model.tokens[value].empty()) {
      return id.Error("is the id of no token");
    }
    ids.push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const JsonPlace& place, TokenizerModel& model) {
  const JsonPlace single = place.Member("single");
  SHERD_ASSIGN_OR_RETURN(const size_t size, single.Size());
  bool after = false;
  for (size_t i = 0; i < size; ++i) {
    const JsonPlace piece = single.Element(i);
    if (!piece.Member("SpecialToken").is_null()) {
      SHERD_RETURN_IF_ERROR(ReadTemplateToken(piece.Member("SpecialToken"),
                                              place.Member("special_tokens"), model,
                                              after ? model.after_text : model.before_text));
    } else if (std::exchange(after, true) || piece.Member("Sequence").Member("id").value() != "A") {
      return piece.Error("must be a SpecialToken or the one Sequence A");
    }
  }
  return after ? absl::OkStatus() : single.Error("must have a Sequence");
}

absl::Status ReadPostProcessor(const JsonPlace& place, TokenizerModel& model) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<JsonPlace> steps, StepsOf(place, "processors"));
  bool has_template = false;
  for (const JsonPlace& step : steps) {
    const JsonPlace type = step.Member("type");
    // ByteLevel is about offsets, which nobody asks for.
    if (type.value() == "ByteLevel") continue;
    if (type.value() != "TemplateProcessing" || std::exchange(has_template, true)) {
      return type.Error("is not supported here: ByteLevel and one TemplateProcessing are");
    }
    SHERD_RETURN_IF_ERROR(ReadTemplate(step, model));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tokenizer> ParseTokenizer(absl::string_view json) {
  if (static_cast<int64_t>(json.size()) > kMostTokenizerFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tokenizer has at most ", kMostTokenizerFileBytes, " bytes"));
  }
  SHERD_ASSIGN_OR_RETURN(const nlohmann::json document, ParseBoundedJson(json, kLimits));
  const JsonPlace root(document, "");
  SHERD_RETURN_IF_ERROR(root.CheckObject());
  const JsonPlace version = root.Member("version");
  if (!version.is_null() && version.value() != "1.0") return version.Error("must be \"1.0\"");
  SHERD_RETURN_IF_ERROR(CheckNull(root.Member("truncation")));
  SHERD_RETURN_IF_ERROR(CheckNull(root.Member("padding")));
  SHERD_RETURN_IF_ERROR(ReadNormalizer(root.Member("normalizer")));
  TokenizerModel model;
  SHERD_RETURN_IF_ERROR(ReadPreTokenizer(root.Member("pre_tokenizer"), model));
  SHERD_RETURN_IF_ERROR(ReadDecoder(root.Member("decoder")));
  Vocabulary vocabulary;
  SHERD_RETURN_IF_ERROR(ReadByteLevelModel(root.Member("model"), model, vocabulary));
  SHERD_RETURN_IF_ERROR(ReadAddedTokens(root.Member("added_tokens"), vocabulary, model));
  SHERD_RETURN_IF_ERROR(ReadPostProcessor(root.Member("post_processor"), model));
  return Tokenizer(std::move(model));
}

}  // namespace sherd
