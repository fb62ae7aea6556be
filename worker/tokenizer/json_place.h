#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace sherd {

// A value of a JSON document together with the words for its place, as in "model.merges[17]".
// The document must outlive it.
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, std::string name)
      : value_(&value), name_(std::move(name)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& name() const { return name_; }
  bool is_null() const { return value_->is_null(); }

  // The members and elements. What is absent is null.
  JsonPlace Member(absl::string_view key) const;
  // `index` must be below Size.
  JsonPlace Element(size_t index) const;
  absl::StatusOr<size_t> Size() const;

  // kInvalidArgument: that the value here has another type.
  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  // What is absent or null is `otherwise`.
  absl::StatusOr<bool> BoolOr(bool otherwise) const;
  // A whole number from 0 to `most`.
  absl::StatusOr<uint32_t> Number(uint32_t most) const;
  // An object, as are the places that have members.
  absl::Status CheckObject() const;

  // kInvalidArgument: "NAME is 3: it must be a string". Long values are cut.
  absl::Status Error(absl::string_view must) const;

 private:
  const nlohmann::json* value_;
  std::string name_;
};

}  // namespace sherd
