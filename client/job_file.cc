#include "client/job_file.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/job_keys.h"
#include "client/yaml_tree.h"
#include "client/yaml_values.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "plan/job_spec.h"
#include "plan/presets.h"

namespace sherd {
namespace {

// Beyond this the rest of a file that is wrong throughout is not listed.
constexpr size_t kMaxProblems = 20;
constexpr size_t kMaxFileBytes = size_t{1} << 20;

const JobKey* FindKey(absl::string_view path) {
  for (const JobKey& key : JobKeys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

bool IsSection(absl::string_view path) {
  const std::string prefix = absl::StrCat(path, ".");
  return std::any_of(JobKeys().begin(), JobKeys().end(),
                     [&](const JobKey& key) { return absl::StartsWith(key.path, prefix); });
}

std::string Join(absl::string_view section, absl::string_view key) {
  return section.empty() ? std::string(key) : absl::StrCat(section, ".", key);
}

// Names of the keys and sections directly in `section`; "" is the whole file.
std::vector<absl::string_view> KeysIn(absl::string_view section) {
  std::vector<absl::string_view> names;
  const std::string prefix = section.empty() ? "" : absl::StrCat(section, ".");
  for (const JobKey& key : JobKeys()) {
    if (!absl::StartsWith(key.path, prefix)) continue;
    const absl::string_view rest = key.path.substr(prefix.size());
    const absl::string_view name = rest.substr(0, rest.find('.'));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

// What keys are called elsewhere.
constexpr std::pair<absl::string_view, absl::string_view> kOtherNames[] = {
    {"tp", "parallel.tensor"},
    {"tensor_parallel", "parallel.tensor"},
    {"tensor_parallel_size", "parallel.tensor"},
    {"zero", "parallel.strategy"},
    {"zero_stage", "parallel.strategy"},
    {"batch_size", "train.global_batch"},
    {"learning_rate", "train.optimizer.lr"},
};

// "; did you mean 'strategy'?": a key of that meaning, a neighbour of similar name, or the key of
// that name elsewhere.
std::string Suggestion(absl::string_view section, absl::string_view name) {
  for (const auto& [other, path] : kOtherNames) {
    if (other != name) continue;
    // Those of the same section go by what follows it.
    return absl::StrCat("; did you mean '", absl::StripPrefix(path, absl::StrCat(section, ".")),
                        "'?");
  }
  const std::string nearest = Nearest(name, KeysIn(section));
  if (!nearest.empty()) return absl::StrCat("; did you mean '", nearest, "'?");
  for (const JobKey& key : JobKeys()) {
    if (absl::EndsWith(key.path, absl::StrCat(".", name))) {
      return absl::StrCat("; did you mean '", key.path, "'?");
    }
  }
  return absl::StrCat("; keys are ", absl::StrJoin(KeysIn(section), ", "));
}

// Walks a document (or the value of one override) and takes its fields over.
class Reader {
 public:
  // `lines`: whether origins name a line.
  Reader(std::string source, bool lines, JobFile& file, std::vector<std::string>& problems)
      : source_(std::move(source)), lines_(lines), file_(file), problems_(problems) {}

  void ReadSection(absl::string_view section, const YamlNode& node) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kMapping) {
      Problem(node.line,
              absl::StrCat(section.empty() ? "a job file" : section, " must be a mapping of ",
                           absl::StrJoin(KeysIn(section), ", ")));
      return;
    }
    for (const YamlNode& child : node.children) Read(Join(section, child.key), child);
  }

  // The field or section `path` with its value.
  void Read(const std::string& path, const YamlNode& node) {
    file_.origins[path] = Where(node.key_line);
    if (const JobKey* key = FindKey(path)) {
      ReadField(*key, node);
    } else if (IsSection(path)) {
      ReadSection(path, node);
    } else {
      const size_t dot = path.rfind('.');
      const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
      const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
      YamlNode named;
      named.kind = YamlNode::Kind::kScalar;
      named.text = name;
      Problem(node.key_line, absl::StrCat("unknown key ", Quoted(named),
                                          section.empty() ? "" : absl::StrCat(" in ", section),
                                          Suggestion(section, name)));
    }
  }

  void Problem(int line, absl::string_view message) {
    problems_.push_back(absl::StrCat(Where(line), ": ", message));
  }

 private:
  std::string Where(int line) const { return lines_ ? absl::StrCat(source_, ":", line) : source_; }

  void ReadField(const JobKey& key, const YamlNode& node) {
    if (absl::Status read = key.read(node, file_.spec); !read.ok()) {
      Problem(node.key_line, absl::StrCat(key.path, ": ", read.message()));
      return;
    }
    if (node.kind != YamlNode::Kind::kSequence) return;
    for (size_t i = 0; i < node.children.size(); ++i) {
      file_.origins[absl::StrCat(key.path, "[", i, "]")] = Where(node.children[i].line);
    }
  }

  const std::string source_;
  const bool lines_;
  JobFile& file_;
  std::vector<std::string>& problems_;
};

void ReadDocument(absl::string_view text, JobFile& file, std::vector<std::string>& problems) {
  Reader reader(file.source, /*lines=*/true, file, problems);
  YamlNode root;
  YamlError error;
  if (!ParseYaml(text, root, error)) return reader.Problem(error.line, error.message);
  if (root.kind == YamlNode::Kind::kNull) return reader.Problem(1, "the job file is empty");
  reader.ReadSection("", root);
}

void ReadOverride(const std::string& text, JobFile& file, std::vector<std::string>& problems) {
  constexpr size_t kLongestShown = 80;
  const bool shown = !FindInvalidUtf8(text) && text.size() <= kLongestShown;
  const std::string source = shown ? absl::StrCat("--set ", text) : "--set";
  Reader reader(source, /*lines=*/false, file, problems);
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.first.empty() || !absl::StrContains(text, "=")) {
    return reader.Problem(1, "must be KEY=VALUE, as in train.steps=20");
  }
  YamlNode value;
  YamlError error;
  if (FindInvalidUtf8(parts.first)) return reader.Problem(1, "the key is not UTF-8 text");
  if (!ParseYaml(parts.second, value, error)) return reader.Problem(1, error.message);
  reader.Read(parts.first, value);
}

// Its kv_heads and ffn are what a job without them has (plan/job_spec.h: FillFromPreset).
bool TakesSizesFromElsewhere(const v1::ModelSpec& model) {
  if (!model.from().empty()) return true;
  const std::optional<v1::ModelSpec> preset = FindPreset(model.preset());
  return preset && (model.arch() == v1::ARCHITECTURE_UNSPECIFIED || model.arch() == preset->arch());
}

// On the wire a 0 is a key that is not given. Where the model comes from elsewhere it would be
// passed over, though it was written to win.
void RefuseSilentZeros(const JobFile& file, std::vector<std::string>& problems) {
  const v1::ModelSpec& model = file.spec.model();
  if (!TakesSizesFromElsewhere(model)) return;
  const std::pair<const char*, int64_t> sizes[] = {{"model.kv_heads", model.kv_heads()},
                                                   {"model.ffn", model.ffn()}};
  for (const auto& [path, value] : sizes) {
    const auto given = file.origins.find(path);
    if (given == file.origins.end() || value != 0) continue;
    problems.push_back(
        absl::StrCat(given->second, ": ", path, ": 0, the default, says nothing beside ",
                     model.from().empty() ? "model.preset" : "model.from",
                     ", which has its own; write the number that you mean, or leave the key out"));
  }
}

}  // namespace

absl::StatusOr<JobFile> ParseJobFile(absl::string_view text, absl::string_view source,
                                     const std::vector<std::string>& overrides) {
  JobFile file;
  file.source = std::string(source);
  std::vector<std::string> problems;
  ReadDocument(text, file, problems);
  for (const std::string& override_text : overrides) ReadOverride(override_text, file, problems);
  if (problems.empty()) RefuseSilentZeros(file, problems);
  if (problems.empty()) return file;
  if (problems.size() > kMaxProblems) {
    const size_t more = problems.size() - kMaxProblems;
    problems.resize(kMaxProblems);
    problems.push_back(absl::StrCat(source, ": and ", more, " more"));
  }
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

absl::StatusOr<JobFile> ReadJobFile(const std::string& path,
                                    const std::vector<std::string>& overrides) {
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  // A directory opens and fails to read.
  if (!stream ||
      (!stream.read(text.data(), static_cast<std::streamsize>(text.size())) && !stream.eof())) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the job file '", path, "': ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  return ParseJobFile(text, path, overrides);
}

std::string OriginOf(const JobFile& file, absl::string_view field) {
  for (std::string part(field); !part.empty();) {
    const auto found = file.origins.find(part);
    if (found != file.origins.end()) return found->second;
    const size_t cut = part.find_last_of(".[");
    part.resize(cut == std::string::npos ? 0 : cut);
  }
  return file.source;
}

std::string DescribeInvalidFields(const v1::InvalidFields& invalid, const JobFile& file) {
  return absl::StrJoin(invalid.fields(), "\n",
                       [&](std::string* out, const v1::InvalidField& field) {
                         absl::StrAppend(out, OriginOf(file, field.field()), ": ", field.field(),
                                         ": ", field.description());
                       });
}

absl::Status CheckJobFile(const JobFile& file) {
  const v1::InvalidFields invalid = ValidateJobSpec(NormalizeJobSpec(file.spec));
  if (invalid.fields().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(DescribeInvalidFields(invalid, file));
}

}  // namespace sherd
