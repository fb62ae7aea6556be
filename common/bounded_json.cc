#include "common/bounded_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

using Json = nlohmann::json;

// Builds a document from the parser's events; returning false ends the parse.
class BoundedBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit BoundedBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(value) != nullptr;
  }
  bool string(string_t& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    if (open_.back()->contains(value)) return Fail(absl::StrCat("the key \"", value, "\" twice"));
    key_ = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return Fail(absl::StrCat("a syntax error at byte ", position));
  }

  Json& document() { return document_; }
  const std::string& error() const { return error_; }

 private:
  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }
  // nullptr past the limit.
  Json* Add(Json value) {
    if (++values_ > limits_.values) {
      Fail(absl::StrCat("more than ", limits_.values, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[std::move(key_)] = std::move(value));
  }
  bool Open(Json value) {
    if (static_cast<int64_t>(open_.size()) >= limits_.depth) {
      return Fail(absl::StrCat("more than ", limits_.depth, " levels"));
    }
    Json* added = Add(std::move(value));
    if (added == nullptr) return false;
    open_.push_back(added);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  int64_t values_ = 0;
  Json document_;
  // Pointers stay valid: only the innermost container grows.
  std::vector<Json*> open_;
  std::string key_;
  std::string error_;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseBoundedJson(absl::string_view text, const JsonLimits& limits) {
  BoundedBuilder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat("its JSON has ", builder.error()));
  }
  return std::move(builder.document());
}

}  // namespace sherd
