#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace sherd {

// What the holder of a token may do. Each of the first three may do what the one before it may.
enum class Role { kView, kSubmit, kAdmin, kWorker };

// Who may call what, by the tokens of a file with a line each: ROLE NAME SHA256, where ROLE is
// view, submit, admin or worker, NAME says whose it is, and SHA256 is that of the token in
// hexadecimal; empty lines and lines that begin with # are passed over. A file that changes is read
// again; one that cannot be read any more leaves what was known in force. Thread-safe.
class Access {
 public:
  // Everybody who reaches the server may do everything.
  static std::unique_ptr<Access> Open();
  // kInvalidArgument, naming file and line, when the file cannot be read or a line is no token.
  static absl::StatusOr<std::unique_ptr<Access>> FromFile(const std::string& path);

  // Whether whoever sent `context` may do what `needed` may. kUnauthenticated without a token that
  // is known, kPermissionDenied when its role is another.
  absl::Status Check(const grpc::ServerContextBase& context, Role needed)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // As Check, of the value of "authorization": "Bearer TOKEN".
  absl::Status CheckAuthorization(absl::string_view authorization, Role needed)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Holder {
    std::string name;
    Role role = Role::kView;
  };
  using Tokens = std::map<Digest, Holder>;
  // Inode, size, seconds and nanoseconds of its last change.
  using FileVersion = std::array<int64_t, 4>;

  explicit Access(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<Tokens> Read(const std::string& path);
  static FileVersion VersionOf(const std::string& path);
  // Reads the file again when it has changed since.
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;  // "": open
  absl::Mutex mutex_;
  Tokens tokens_ ABSL_GUARDED_BY(mutex_);
  FileVersion version_ ABSL_GUARDED_BY(mutex_) = {};  // of the file as it was read last
};

}  // namespace sherd
