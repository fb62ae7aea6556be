#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "worker/checkpoint/file_system.h"

namespace sherd {

// What of that which was not made durable a crash leaves.
enum class Survives {
  kNothing,  // a power cut at once
  kAll,      // the processes alone were killed
  kSome,  // of each directory the first of its changes; of each file a part, or zeros in its place
};

// A real directory, and beside it what of it is durable: what a file had when it was last synced,
// and the entries that a directory had when it was. The n-th call fails, and from then on all do
// (a crash), or only that one (a full disk). Removing a directory is a call for each of its files.
class CrashFileSystem final : public FileSystem {
 public:
  enum class Fault { kCrash, kOnce };
  // `base` exists and is empty; all paths lie below it.
  explicit CrashFileSystem(std::string base);
  ~CrashFileSystem() override;

  // Counts calls from 0 on again; the `failing_call`-th will fail.
  void FailAt(int64_t failing_call, Fault fault);
  int64_t calls() const { return calls_; }
  bool failed() const { return calls_ > failing_call_; }

  // Writes what a crash now would leave into the empty directory `to`.
  void LeaveAfterCrash(Survives survives, std::mt19937_64& random, const std::string& to) const;

  absl::Status MakeDirectories(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status RenameOrExchange(const std::string& from, const std::string& to) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;

 private:
  struct Node;
  class File;
  using Entries = std::map<std::string, std::shared_ptr<Node>>;
  // New entries under these names; nullptr: none. They become durable together.
  using Change = std::vector<std::pair<std::string, std::shared_ptr<Node>>>;
  struct Node {
    bool directory = false;
    std::string bytes, durable_bytes;
    Entries entries, durable_entries;
    // What was done to `durable_entries` to make them `entries`.
    std::vector<Change> pending;
  };

  bool Allow();
  // The directory that holds the path's last name, and that name.
  std::pair<Node*, std::string> Find(const std::string& path);
  static void Apply(const Change& change, Entries& entries);
  static void Do(Node& directory, Change change);
  absl::Status RemoveNode(Node& parent, const std::string& name, const std::string& path);
  static void Leave(const Node& node, Survives survives, std::mt19937_64& random,
                    const std::string& to);

  const std::string base_;
  const std::unique_ptr<FileSystem> real_ = MakePosixFileSystem();
  const std::shared_ptr<Node> root_;
  int64_t failing_call_ = INT64_MAX;
  Fault fault_ = Fault::kOnce;
  int64_t calls_ = 0;
};

}  // namespace sherd
