#include "worker/data/json_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "nlohmann/json.hpp"

namespace sherd {
namespace {

using Json = nlohmann::json;

// Hears the parser's events and keeps some strings. Returning false ends the parse.
class TextPicker final : public nlohmann::json_sax<Json> {
 public:
  TextPicker(absl::Span<const absl::string_view> keys, absl::Span<std::string> texts)
      : keys_(keys), texts_(texts), found_(keys.size(), false) {
    SHERD_CHECK(keys.size() == texts.size());
  }

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(number_integer_t) override { return Value(); }
  bool number_unsigned(number_unsigned_t) override { return Value(); }
  bool number_float(number_float_t, const string_t&) override { return Value(); }
  bool binary(binary_t&) override { return Value(); }
  bool string(string_t& value) override {
    if (expected_ == kNone) return Value();
    texts_[expected_] = std::move(value);
    found_[expected_] = true;
    expected_ = kNone;
    return true;
  }
  bool start_object(size_t) override {
    const bool outermost = depth_ == 0;
    if (!outermost && !Value()) return false;
    ++depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (!Value()) return false;
    ++depth_;
    return true;
  }
  bool end_object() override { return End(); }
  bool end_array() override { return End(); }
  bool key(string_t& key) override {
    if (depth_ != 1) return true;
    const auto known = std::find(keys_.begin(), keys_.end(), key);
    if (known == keys_.end()) return true;
    expected_ = static_cast<size_t>(known - keys_.begin());
    return !found_[expected_] || Fail(absl::StrCat("the object has the key \"", key, "\" twice"));
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    byte_ = position > 0 ? static_cast<int64_t>(position) - 1 : 0;
    return Fail("a syntax error, or no UTF-8");
  }

  // "": none.
  absl::string_view missing() const {
    const auto missing = std::find(found_.begin(), found_.end(), false);
    return missing == found_.end() ? "" : keys_[static_cast<size_t>(missing - found_.begin())];
  }
  int64_t byte() const { return byte_; }
  const std::string& reason() const { return reason_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  bool Fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  // A value other than a text.
  bool Value() {
    if (depth_ == 0) return Fail("the line is no JSON object");
    if (expected_ == kNone) return true;
    return Fail(absl::StrCat("the value of \"", keys_[expected_], "\" is no string"));
  }
  bool End() {
    --depth_;
    return true;
  }

  const absl::Span<const absl::string_view> keys_;
  const absl::Span<std::string> texts_;
  std::vector<bool> found_;
  int64_t depth_ = 0;
  // Of the keys, the one whose value comes next.
  size_t expected_ = kNone;
  int64_t byte_ = 0;
  std::string reason_;
};

}  // namespace

bool ReadJsonTexts(absl::string_view line, absl::Span<const absl::string_view> keys,
                   absl::Span<std::string> texts, JsonTextError& error) {
  TextPicker picker(keys, texts);
  const bool whole = Json::sax_parse(line.begin(), line.end(), &picker);
  if (whole && picker.missing().empty()) return true;
  error.byte = picker.byte();
  error.reason =
      whole ? absl::StrCat("the object has no key \"", picker.missing(), "\"") : picker.reason();
  return false;
}

}  // namespace sherd
