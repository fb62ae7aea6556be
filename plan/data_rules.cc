#include "plan/data_rules.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

constexpr int kMaxPaths = 10'000;
constexpr int64_t kByteVocab = 256;
// A source with a smaller part would hardly ever be drawn from.
constexpr double kMostProportion = 1e5;
constexpr double kMostHeldOut = 0.5;

bool IsPath(const std::string& path) {
  return !path.empty() && path.size() <= kMaxPathLength && !HasControl(path);
}

void CheckPaths(absl::string_view field,
                const google::protobuf::RepeatedPtrField<std::string>& paths, SpecRules& rules) {
  if (paths.size() > kMaxPaths) {
    rules.Add(field,
              absl::StrCat("lists ", paths.size(), " files; at most ", kMaxPaths, " are allowed"));
    return;
  }
  for (int i = 0; i < paths.size(); ++i) {
    if (IsPath(paths[i])) continue;
    rules.Add(absl::StrCat(field, "[", i, "]"),
              absl::StrCat("must be a path of 1 to ", kMaxPathLength,
                           " characters, none a control character"));
  }
}

void CheckWeights(const v1::DataSpec& data, SpecRules& rules) {
  if (data.train_weights().empty()) return;
  if (data.train_weights_size() != data.train_size()) {
    rules.Add("data.train",
              absl::StrCat("has ", data.train_size(), " entries and ", data.train_weights_size(),
                           " weights; give every entry a weight, or none"));
    return;
  }
  bool valid = true;
  for (int i = 0; i < data.train_weights_size(); ++i) {
    const double weight = data.train_weights(i);
    valid = rules.CheckReal(absl::StrCat("data.train[", i, "]"), weight, weight > 0,
                            "a weight above 0, as in {path: corpus.txt, weight: 2.5}") &&
            valid;
  }
  if (!valid) return;
  const auto [least, most] =
      std::minmax_element(data.train_weights().begin(), data.train_weights().end());
  if (*most / *least <= kMostProportion) return;
  rules.Add(absl::StrCat("data.train[", least - data.train_weights().begin(), "]"),
            absl::StrCat("the weight ", *least, " is less than 1 / ", kMostProportion,
                         " of the largest one, ", *most, "; leave the entry out or give it more"));
}

void CheckSplit(const v1::DataSpec& data, SpecRules& rules) {
  const double held_out = data.validation_split();
  if (held_out == 0) return;
  if (!rules.CheckReal("data.validation_split", held_out, held_out > 0 && held_out <= kMostHeldOut,
                       "above 0 and at most 0.5, as in 0.05")) {
    return;
  }
  if (data.eval().empty()) return;
  rules.Add("data.validation_split",
            "cannot be given together with data.eval, which says what is evaluated on; leave one "
            "of them out");
}

void CheckTokenizer(const v1::DataSpec& data, int64_t vocab, SpecRules& rules) {
  if (data.tokenizer() != "bytes") {
    if (IsPath(data.tokenizer())) return;
    rules.Add("data.tokenizer",
              absl::StrCat("must be 'bytes' or the path of a tokenizer.json of at most ",
                           kMaxPathLength, " characters, none a control character"));
    return;
  }
  if (!IsText(data.format()) || vocab <= 0 || vocab >= kByteVocab) return;
  rules.Add("model.vocab", absl::StrCat("the tokenizer 'bytes' needs a vocabulary of at least ",
                                        kByteVocab, "; ", vocab, " is too small"));
}

}  // namespace

void CheckData(const v1::DataSpec& data, int64_t vocab, SpecRules& rules) {
  if (data.train().empty()) {
    rules.Add("data.train", "must list at least one file to train on, as in [corpus.txt]");
  }
  CheckPaths("data.train", data.train(), rules);
  CheckPaths("data.eval", data.eval(), rules);
  CheckWeights(data, rules);
  CheckSplit(data, rules);
  if (NameOf(data.format()).empty()) {
    rules.Add("data.format",
              absl::StrCat("must be one of ", absl::StrJoin(DataFormatNames(), ", ")));
  }
  CheckTokenizer(data, vocab, rules);
}

}  // namespace sherd
