#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace sherd {

// "the manifest …", kInvalidArgument.
absl::Status WrongManifest(absl::string_view what);

// A whole number from 0 to the largest int64.
bool IsJsonSize(const nlohmann::json& value);

// Reads members of an object; remembers the first that is missing or of another type, and gives
// nothing from then on. The object must outlive it.
class JsonMembers {
 public:
  explicit JsonMembers(const nlohmann::json& object);

  bool Has(const char* key) const;
  int64_t Size(const char* key);
  uint64_t Unsigned(const char* key);
  std::string String(const char* key);
  double Real(const char* key);
  bool Bool(const char* key);
  const nlohmann::json& Array(const char* key);
  const nlohmann::json& Object(const char* key);

  // kInvalidArgument, naming that member.
  absl::Status status() const;

 private:
  const nlohmann::json* Find(const char* key);
  void Fail(const char* key);

  const nlohmann::json& object_;
  std::string wrong_;
};

}  // namespace sherd
