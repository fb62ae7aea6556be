#include "tests/worker/checkpoint/crash_file_system.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

absl::Status Injected() { return absl::ResourceExhaustedError("injected: no space left"); }

}  // namespace

// Writes half of what a failing call was given.
class CrashFileSystem::File final : public OutputFile {
 public:
  File(std::unique_ptr<OutputFile> real, std::shared_ptr<Node> node, CrashFileSystem& files)
      : real_(std::move(real)), node_(std::move(node)), files_(files) {}

  absl::Status Append(absl::string_view bytes) override {
    const bool allowed = files_.Allow();
    const absl::string_view written = allowed ? bytes : bytes.substr(0, bytes.size() / 2);
    absl::StrAppend(&node_->bytes, written);
    SHERD_RETURN_IF_ERROR(real_->Append(written));
    return allowed ? absl::OkStatus() : Injected();
  }
  absl::Status Sync() override {
    if (!files_.Allow()) return Injected();
    node_->durable_bytes = node_->bytes;
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<OutputFile> real_;
  const std::shared_ptr<Node> node_;
  CrashFileSystem& files_;
};

CrashFileSystem::CrashFileSystem(std::string base)
    : base_(std::move(base)), root_(std::make_shared<Node>()) {
  root_->directory = true;
}
CrashFileSystem::~CrashFileSystem() = default;

void CrashFileSystem::FailAt(int64_t failing_call, Fault fault) {
  failing_call_ = failing_call;
  fault_ = fault;
  calls_ = 0;
}

bool CrashFileSystem::Allow() {
  const int64_t call = calls_++;
  return fault_ == Fault::kOnce ? call != failing_call_ : call < failing_call_;
}

std::pair<CrashFileSystem::Node*, std::string> CrashFileSystem::Find(const std::string& path) {
  SHERD_CHECK(absl::StartsWith(path, absl::StrCat(base_, "/")));
  std::vector<std::string> names = absl::StrSplit(path.substr(base_.size() + 1), '/');
  const std::string last = names.back();
  names.pop_back();
  Node* node = root_.get();
  for (const std::string& name : names) {
    const auto found = node->entries.find(name);
    if (found == node->entries.end()) return {nullptr, last};
    node = found->second.get();
  }
  return {node, last};
}

void CrashFileSystem::Apply(const Change& change, Entries& entries) {
  for (const auto& [name, node] : change) {
    if (node == nullptr) {
      entries.erase(name);
    } else {
      entries[name] = node;
    }
  }
}

void CrashFileSystem::Do(Node& directory, Change change) {
  Apply(change, directory.entries);
  directory.pending.push_back(std::move(change));
}

absl::Status CrashFileSystem::MakeDirectories(const std::string& path) {
  if (!Allow()) return Injected();
  // The real one would sync.
  std::filesystem::create_directories(path);
  Node* node = root_.get();
  const std::string below = path.substr(base_.size() + 1);
  for (const absl::string_view part : absl::StrSplit(below, '/')) {
    const std::string name(part);
    std::shared_ptr<Node>& child = node->entries[name];
    if (child == nullptr) {
      child = std::make_shared<Node>();
      child->directory = true;
      node->durable_entries[name] = child;
    }
    node = child.get();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OutputFile>> CrashFileSystem::Create(const std::string& path) {
  if (!Allow()) return Injected();
  SHERD_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> real, real_->Create(path));
  const auto [parent, name] = Find(path);
  std::shared_ptr<Node> node = parent->entries[name];
  if (node == nullptr) {
    node = std::make_shared<Node>();
    Do(*parent, {{name, node}});
  }
  node->bytes.clear();
  return std::make_unique<File>(std::move(real), std::move(node), *this);
}

absl::StatusOr<std::vector<std::string>> CrashFileSystem::List(const std::string& directory) {
  if (!Allow()) return Injected();
  return real_->List(directory);
}

absl::Status CrashFileSystem::SyncDirectory(const std::string& path) {
  if (!Allow()) return Injected();
  const auto [parent, name] = Find(absl::StrCat(path, "/."));
  parent->durable_entries = parent->entries;
  parent->pending.clear();
  return absl::OkStatus();
}

absl::Status CrashFileSystem::RenameOrExchange(const std::string& from, const std::string& to) {
  if (!Allow()) return Injected();
  SHERD_RETURN_IF_ERROR(real_->RenameOrExchange(from, to));
  const auto [parent, from_name] = Find(from);
  const auto [to_parent, to_name] = Find(to);
  SHERD_CHECK(parent == to_parent);
  const auto other = parent->entries.find(to_name);
  const std::shared_ptr<Node> node = parent->entries.at(from_name);
  Do(*parent,
     {{from_name, other == parent->entries.end() ? nullptr : other->second}, {to_name, node}});
  return absl::OkStatus();
}

absl::Status CrashFileSystem::Rename(const std::string& from, const std::string& to) {
  if (!Allow()) return Injected();
  SHERD_RETURN_IF_ERROR(real_->Rename(from, to));
  const auto [parent, from_name] = Find(from);
  const auto [to_parent, to_name] = Find(to);
  SHERD_CHECK(parent == to_parent);
  const std::shared_ptr<Node> node = parent->entries.at(from_name);
  Do(*parent, {{from_name, nullptr}, {to_name, node}});
  return absl::OkStatus();
}

absl::Status CrashFileSystem::RemoveNode(Node& parent, const std::string& name,
                                         const std::string& path) {
  Node& node = *parent.entries.at(name);
  std::vector<std::string> names;
  for (const auto& [child, unused] : node.entries) names.push_back(child);
  for (const std::string& child : names) {
    SHERD_RETURN_IF_ERROR(RemoveNode(node, child, absl::StrCat(path, "/", child)));
  }
  if (!Allow()) return Injected();
  SHERD_RETURN_IF_ERROR(real_->Remove(path));
  Do(parent, {{name, nullptr}});
  return absl::OkStatus();
}

absl::Status CrashFileSystem::Remove(const std::string& path) {
  const auto [parent, name] = Find(path);
  if (parent == nullptr || !parent->entries.contains(name)) {
    return Allow() ? absl::OkStatus() : Injected();
  }
  return RemoveNode(*parent, name, path);
}

void CrashFileSystem::Leave(const Node& node, Survives survives, std::mt19937_64& random,
                            const std::string& to) {
  if (!node.directory) {
    std::string bytes = survives == Survives::kAll ? node.bytes : node.durable_bytes;
    if (survives == Survives::kSome && node.bytes != node.durable_bytes && random() % 3 != 0) {
      bytes = node.bytes.substr(0, random() % (node.bytes.size() + 1));
      if (random() % 2 == 0) bytes.resize(node.bytes.size(), '\0');
    }
    std::ofstream(to, std::ios::binary) << bytes;
    return;
  }
  Entries entries = survives == Survives::kAll ? node.entries : node.durable_entries;
  if (survives == Survives::kSome) {
    const size_t changes = random() % (node.pending.size() + 1);
    for (size_t i = 0; i < changes; ++i) Apply(node.pending[i], entries);
  }
  std::filesystem::create_directories(to);
  for (const auto& [name, child] : entries) {
    Leave(*child, survives, random, absl::StrCat(to, "/", name));
  }
}

void CrashFileSystem::LeaveAfterCrash(Survives survives, std::mt19937_64& random,
                                      const std::string& to) const {
  Leave(*root_, survives, random, to);
}

}  // namespace sherd
