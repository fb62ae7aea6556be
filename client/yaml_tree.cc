#include "client/yaml_tree.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/utf8.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/parser.h"

namespace sherd {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxNodes = 50'000;
// A mapping's keys are compared pairwise.
constexpr size_t kMaxKeys = 200;

constexpr char kNoAliases[] =
    "aliases (*name) are not allowed in a job file; write the value out, and put a pattern in "
    "quotes, as in '*.txt'";

// Builds the tree from the parser's events; keeps the first thing that is wrong.
class TreeBuilder final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    YamlNode node;
    node.line = mark.line + 1;
    Attach(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, kNoAliases);
    YamlNode node;
    node.line = mark.line + 1;
    Attach(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.text = value;
    node.quoted = tag == "!";
    node.line = mark.line + 1;
    Attach(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kMapping, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

  const std::optional<YamlError>& error() const { return error_; }
  YamlNode TakeRoot() { return std::move(root_); }

 private:
  struct OpenNode {
    YamlNode node;
    // The key that waits for its value, in a mapping.
    std::optional<YamlNode> key;
  };

  void Refuse(const YAML::Mark& mark, absl::string_view message) {
    if (!error_) error_ = YamlError{mark.line + 1, std::string(message)};
  }
  void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) Refuse(mark, "anchors (&name) are not allowed in a job file");
  }
  void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    // "?" is a plain value, "!" a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") {
      Refuse(mark, "tags (!name) are not allowed in a job file");
    }
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (open_.size() >= kMaxDepth) {
      Refuse(mark, absl::StrCat("nested more than ", kMaxDepth, " levels deep"));
    }
    OpenNode opened;
    opened.node.kind = kind;
    opened.node.line = mark.line + 1;
    open_.push_back(std::move(opened));
  }

  void Close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Attach(std::move(node));
  }

  void Attach(YamlNode node) {
    // After an error the rest is only skipped.
    if (error_) return;
    if (++nodes_ > kMaxNodes) {
      error_ = YamlError{node.line, absl::StrCat("more than ", kMaxNodes, " values")};
      return;
    }
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kSequence) {
      parent.node.children.push_back(std::move(node));
    } else if (!parent.key) {
      TakeKey(parent, std::move(node));
    } else {
      node.key = std::move(parent.key->text);
      node.key_line = parent.key->line;
      parent.key.reset();
      parent.node.children.push_back(std::move(node));
    }
  }

  void TakeKey(OpenNode& parent, YamlNode key) {
    if (key.kind != YamlNode::Kind::kScalar) {
      error_ = YamlError{key.line, "a key must be a name"};
      return;
    }
    const auto& siblings = parent.node.children;
    if (siblings.size() >= kMaxKeys) {
      error_ = YamlError{key.line, absl::StrCat("more than ", kMaxKeys, " keys in one mapping")};
      return;
    }
    const auto twin = std::find_if(siblings.begin(), siblings.end(),
                                   [&](const YamlNode& node) { return node.key == key.text; });
    if (twin != siblings.end()) {
      error_ = YamlError{key.line, absl::StrCat("key '", key.text, "' stands twice; first at line ",
                                                twin->key_line)};
      return;
    }
    parent.key = std::move(key);
  }

  std::vector<OpenNode> open_;
  YamlNode root_;
  size_t nodes_ = 0;
  std::optional<YamlError> error_;
};

}  // namespace

bool ParseYaml(absl::string_view text, YamlNode& root, YamlError& error) {
  if (text.size() > kMaxBytes) {
    error = {1, absl::StrCat("has ", text.size(), " bytes; at most ", kMaxBytes, " are allowed")};
    return false;
  }
  if (const std::optional<size_t> bad = FindInvalidUtf8(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + *bad, '\n');
    error = {static_cast<int>(line), "is not UTF-8 text"};
    return false;
  }
  TreeBuilder builder;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    if (!builder.error() && parser.HandleNextDocument(builder)) {
      error = {1, "holds more than one document"};
      return false;
    }
  } catch (const YAML::Exception& exception) {
    if (!builder.error()) {
      // The parser has looked for the anchor of what may be meant as a pattern.
      const bool alias = absl::StartsWith(exception.msg, YAML::ErrorMsg::UNKNOWN_ANCHOR);
      error = {std::max(1, exception.mark.line + 1),
               alias ? std::string(kNoAliases) : absl::StrCat("not YAML: ", exception.msg)};
      return false;
    }
  }
  if (builder.error()) {
    error = *builder.error();
    return false;
  }
  root = builder.TakeRoot();
  return true;
}

}  // namespace sherd
