#include "worker/checkpoint/json_members.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace sherd {

using Json = nlohmann::json;

absl::Status WrongManifest(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the manifest ", what));
}

bool IsJsonSize(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

JsonMembers::JsonMembers(const Json& object) : object_(object) {
  if (!object.is_object()) Fail("(an object)");
}

bool JsonMembers::Has(const char* key) const {
  return object_.is_object() && object_.find(key) != object_.end();
}

int64_t JsonMembers::Size(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return 0;
  if (!IsJsonSize(*value)) return Fail(key), 0;
  return value->get<int64_t>();
}

uint64_t JsonMembers::Unsigned(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return 0;
  if (!value->is_number_unsigned()) return Fail(key), 0;
  return value->get<uint64_t>();
}

std::string JsonMembers::String(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return "";
  if (!value->is_string()) return Fail(key), "";
  return value->get<std::string>();
}

double JsonMembers::Real(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return 0;
  if (!value->is_number()) return Fail(key), 0;
  return value->get<double>();
}

bool JsonMembers::Bool(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return Fail(key), false;
  return value->get<bool>();
}

const Json& JsonMembers::Array(const char* key) {
  static const Json kEmpty = Json::array();
  const Json* value = Find(key);
  if (value == nullptr) return kEmpty;
  if (!value->is_array()) return Fail(key), kEmpty;
  return *value;
}

const Json& JsonMembers::Object(const char* key) {
  static const Json kEmpty = Json::object();
  const Json* value = Find(key);
  if (value == nullptr) return kEmpty;
  if (!value->is_object()) return Fail(key), kEmpty;
  return *value;
}

absl::Status JsonMembers::status() const {
  return wrong_.empty() ? absl::OkStatus()
                        : WrongManifest(absl::StrCat("lacks a valid \"", wrong_, "\""));
}

const Json* JsonMembers::Find(const char* key) {
  if (!wrong_.empty()) return nullptr;
  const auto found = object_.find(key);
  if (found == object_.end()) return Fail(key), nullptr;
  return &*found;
}

void JsonMembers::Fail(const char* key) {
  if (wrong_.empty()) wrong_ = key;
}

}  // namespace sherd
