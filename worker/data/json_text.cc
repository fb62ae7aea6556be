#include "worker/data/json_text.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace sherd {
namespace {

using Json = nlohmann::json;

// Hears the parser's events and keeps one string. Returning false ends the parse.
class TextPicker final : public nlohmann::json_sax<Json> {
 public:
  explicit TextPicker(std::string& text) : text_(text) {}

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(number_integer_t) override { return Value(); }
  bool number_unsigned(number_unsigned_t) override { return Value(); }
  bool number_float(number_float_t, const string_t&) override { return Value(); }
  bool binary(binary_t&) override { return Value(); }
  bool string(string_t& value) override {
    if (!expects_text_) return Value();
    text_ = std::move(value);
    expects_text_ = false;
    has_text_ = true;
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
    if (depth_ != 1 || key != "text") return true;
    if (has_text_) return Fail("the object has the key \"text\" twice");
    expects_text_ = true;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    byte_ = position > 0 ? static_cast<int64_t>(position) - 1 : 0;
    return Fail("a syntax error, or no UTF-8");
  }

  bool has_text() const { return has_text_; }
  int64_t byte() const { return byte_; }
  const std::string& reason() const { return reason_; }

 private:
  bool Fail(const char* reason) {
    reason_ = reason;
    return false;
  }
  // A value other than the text.
  bool Value() {
    if (depth_ == 0) return Fail("the line is no JSON object");
    if (expects_text_) return Fail("the value of \"text\" is no string");
    return true;
  }
  bool End() {
    --depth_;
    return true;
  }

  std::string& text_;
  int64_t depth_ = 0;
  bool expects_text_ = false;
  bool has_text_ = false;
  int64_t byte_ = 0;
  std::string reason_;
};

}  // namespace

bool ReadJsonText(absl::string_view line, std::string& text, JsonTextError& error) {
  TextPicker picker(text);
  const bool whole = Json::sax_parse(line.begin(), line.end(), &picker);
  if (whole && picker.has_text()) return true;
  error.byte = picker.byte();
  error.reason = whole ? "the object has no key \"text\"" : picker.reason();
  return false;
}

}  // namespace sherd
