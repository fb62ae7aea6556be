#include "plan/model_folder.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "plan/spec_rules.h"

namespace sherd {
namespace {

class Agreement {
 public:
  // A zero is a value that was not given.
  template <typename Value>
  void Compare(absl::string_view field, const Value& given, const Value& folder) {
    if (given == Value{} || given == folder) return;
    Differ(field, absl::StrCat(given), absl::StrCat(folder));
  }
  void Differ(absl::string_view field, absl::string_view given, absl::string_view folder) {
    rules_.Add(absl::StrCat("model.", field),
               absl::StrCat(given, " is not what config.json of model.from says, which is ", folder,
                            "; leave it out"));
  }
  v1::InvalidFields Take() { return std::move(rules_).Take(); }

 private:
  SpecRules rules_;
};

const char* Spell(bool flag) { return flag ? "true" : "false"; }

void CompareRope(const v1::ModelSpec& given, const v1::ModelSpec& folder, Agreement& agreement) {
  if (!given.has_rope_scaling()) return;
  const v1::RopeScaling& scaling = given.rope_scaling();
  if (!folder.has_rope_scaling()) {
    return agreement.Differ("rope_scaling", absl::StrCat("factor ", scaling.factor()),
                            "no scaling");
  }
  const v1::RopeScaling& there = folder.rope_scaling();
  agreement.Compare("rope_scaling.factor", scaling.factor(), there.factor());
  agreement.Compare("rope_scaling.low_freq_factor", scaling.low_freq_factor(),
                    there.low_freq_factor());
  agreement.Compare("rope_scaling.high_freq_factor", scaling.high_freq_factor(),
                    there.high_freq_factor());
  agreement.Compare("rope_scaling.original_context", scaling.original_context(),
                    there.original_context());
}

}  // namespace

bool AwaitsShape(const v1::ModelSpec& model) {
  if (model.from().empty()) return false;
  const bool sizes = model.layers() != 0 && model.hidden() != 0 && model.heads() != 0 &&
                     model.kv_heads() != 0 && model.ffn() != 0 && model.vocab() != 0 &&
                     model.context() != 0;
  if (!sizes || model.arch() == v1::ARCHITECTURE_UNSPECIFIED || !model.has_tie_embeddings()) {
    return true;
  }
  return model.arch() == v1::ARCHITECTURE_LLAMA &&
         (model.norm_eps() == 0 || model.rope_theta() == 0);
}

v1::InvalidFields TakeShape(const v1::ModelSpec& folder, v1::ModelSpec& model) {
  Agreement agreement;
  if (model.arch() != v1::ARCHITECTURE_UNSPECIFIED && model.arch() != folder.arch()) {
    agreement.Differ("arch", NameOf(model.arch()), NameOf(folder.arch()));
  }
  agreement.Compare("layers", model.layers(), folder.layers());
  agreement.Compare("hidden", model.hidden(), folder.hidden());
  agreement.Compare("heads", model.heads(), folder.heads());
  agreement.Compare("kv_heads", model.kv_heads(), folder.kv_heads());
  agreement.Compare("ffn", model.ffn(), folder.ffn());
  agreement.Compare("vocab", model.vocab(), folder.vocab());
  agreement.Compare("context", model.context(), folder.context());
  if (model.has_tie_embeddings() && model.tie_embeddings() != folder.tie_embeddings()) {
    agreement.Differ("tie_embeddings", Spell(model.tie_embeddings()),
                     Spell(folder.tie_embeddings()));
  }
  agreement.Compare("norm_eps", model.norm_eps(), folder.norm_eps());
  agreement.Compare("rope_theta", model.rope_theta(), folder.rope_theta());
  CompareRope(model, folder, agreement);
  v1::InvalidFields differences = agreement.Take();
  if (!differences.fields().empty()) return differences;
  std::string from = model.from();
  const std::string preset = model.preset();
  model = folder;
  model.set_from(std::move(from));
  model.set_preset(preset);
  return differences;
}

}  // namespace sherd
