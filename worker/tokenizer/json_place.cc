#include "worker/tokenizer/json_place.h"

#include "absl/strings/str_cat.h"
#include "common/printable_text.h"

namespace sherd {

using Json = nlohmann::json;

JsonPlace JsonPlace::Member(absl::string_view key) const {
  static const Json null;
  std::string name = name_.empty() ? std::string(key) : absl::StrCat(name_, ".", key);
  const auto found = value_->is_object() ? value_->find(std::string(key)) : value_->end();
  return {found == value_->end() ? null : *found, std::move(name)};
}

JsonPlace JsonPlace::Element(size_t index) const {
  return {(*value_)[index], absl::StrCat(name_, "[", index, "]")};
}

absl::StatusOr<size_t> JsonPlace::Size() const {
  if (!value_->is_array()) return Error("must be a list");
  return value_->size();
}

absl::StatusOr<std::string> JsonPlace::String() const {
  if (!value_->is_string()) return Error("must be a string");
  return value_->get<std::string>();
}

absl::StatusOr<bool> JsonPlace::Bool() const {
  if (!value_->is_boolean()) return Error("must be true or false");
  return value_->get<bool>();
}

absl::StatusOr<bool> JsonPlace::BoolOr(bool otherwise) const {
  if (is_null()) return otherwise;
  return Bool();
}

absl::StatusOr<uint32_t> JsonPlace::Number(uint32_t most) const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() > most) {
    return Error(absl::StrCat("must be a whole number from 0 to ", most));
  }
  return value_->get<uint32_t>();
}

absl::Status JsonPlace::CheckObject() const {
  return value_->is_object() ? absl::OkStatus() : Error("must be an object");
}

absl::Status JsonPlace::Error(absl::string_view must) const {
  constexpr size_t kMostNameBytes = 200;
  constexpr size_t kMostValueBytes = 120;
  constexpr size_t kMostRuleBytes = 400;
  const std::string name = name_.empty() ? "the file" : PrintableText(name_, kMostNameBytes);
  if (is_null()) return absl::InvalidArgumentError(absl::StrCat(name, " is absent: it ", must));
  std::string value = value_->is_object() ? "an object" : value_->is_array() ? "a list" : "";
  if (value_->is_string()) value = absl::StrCat("\"", value_->get_ref<const std::string&>(), "\"");
  if (value.empty()) value = value_->dump();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ",
                                                 PrintableText(value, kMostValueBytes), ": it ",
                                                 PrintableText(must, kMostRuleBytes)));
}

}  // namespace sherd
