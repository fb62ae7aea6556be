#include "coordinator/rpc/access.h"

#include <grpcpp/server_context.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr char kHeader[] = "authorization";
constexpr absl::string_view kRoles[] = {"view", "submit", "admin", "worker"};
// Nobody has more users, and a file that is none is not read whole.
constexpr size_t kMostTokens = 10'000;
constexpr size_t kHexDigits = 64;

absl::string_view NameOf(Role role) { return kRoles[static_cast<size_t>(role)]; }

bool Includes(Role held, Role needed) {
  if (held == Role::kWorker || needed == Role::kWorker) return held == needed;
  return held >= needed;
}

absl::Status WrongLine(const std::string& path, int line, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("--tokens ", path, " line ", line, ": ", what,
                   "; a line is ROLE NAME SHA256, as printf %s TOKEN | sha256sum prints it"));
}

}  // namespace

std::unique_ptr<Access> Access::Open() { return std::unique_ptr<Access>(new Access("")); }

absl::StatusOr<std::unique_ptr<Access>> Access::FromFile(const std::string& path) {
  std::unique_ptr<Access> access(new Access(path));
  absl::MutexLock lock(&access->mutex_);
  access->version_ = VersionOf(path);
  SHERD_ASSIGN_OR_RETURN(access->tokens_, Read(path));
  return access;
}

Access::FileVersion Access::VersionOf(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {static_cast<int64_t>(found.st_ino), found.st_size, found.st_ctim.tv_sec,
          found.st_ctim.tv_nsec};
}

absl::StatusOr<Access::Tokens> Access::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("--tokens ", path, " cannot be read"));
  Tokens tokens;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    if (words.size() != 3) return WrongLine(path, number, "it has not three words");
    const auto role = std::find(std::begin(kRoles), std::end(kRoles), words[0]);
    if (role == std::end(kRoles)) {
      return WrongLine(path, number, "its role is none of view, submit, admin and worker");
    }
    const bool hexadecimal = std::all_of(words[2].begin(), words[2].end(), [](char c) {
      return absl::ascii_isxdigit(static_cast<unsigned char>(c));
    });
    if (words[2].size() != kHexDigits || !hexadecimal) {
      return WrongLine(path, number, "its third word is no SHA-256 of 64 hexadecimal digits");
    }
    const std::string bytes = absl::HexStringToBytes(words[2]);
    Digest digest;
    std::copy(bytes.begin(), bytes.end(), digest.begin());
    const Holder holder{words[1], static_cast<Role>(role - std::begin(kRoles))};
    if (!tokens.emplace(digest, holder).second) {
      return WrongLine(path, number, "the same token has a line before");
    }
    if (tokens.size() > kMostTokens) {
      return WrongLine(path, number, absl::StrCat("more than ", kMostTokens, " tokens"));
    }
  }
  if (tokens.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens ", path, " holds no token, so nobody could call"));
  }
  return tokens;
}

void Access::Refresh() {
  const FileVersion now = VersionOf(path_);
  if (now == version_) return;
  absl::StatusOr<Tokens> tokens = Read(path_);
  version_ = now;
  if (tokens.ok()) {
    tokens_ = *std::move(tokens);
    Log(Severity::kInfo, absl::StrCat("read ", tokens_.size(), " tokens of ", path_));
  } else {
    Log(Severity::kError,
        absl::StrCat(tokens.status().message(), "; the tokens known before stay in force"));
  }
}

absl::Status Access::Check(const grpc::ServerContextBase& context, Role needed) {
  const auto found = context.client_metadata().find(kHeader);
  return CheckAuthorization(found == context.client_metadata().end()
                                ? absl::string_view()
                                : absl::string_view(found->second.data(), found->second.size()),
                            needed);
}

absl::Status Access::CheckAuthorization(absl::string_view authorization, Role needed) {
  if (path_.empty()) return absl::OkStatus();
  if (!absl::ConsumePrefix(&authorization, "Bearer ")) {
    return absl::UnauthenticatedError(
        "this coordinator wants a token; name the file that holds yours with --token-file");
  }
  Digest digest;
  SHA256(reinterpret_cast<const uint8_t*>(authorization.data()), authorization.size(),
         digest.data());
  absl::MutexLock lock(&mutex_);
  Refresh();
  const auto found = tokens_.find(digest);
  if (found == tokens_.end()) {
    return absl::UnauthenticatedError(
        "this coordinator does not know the token; was it withdrawn, or is it another cluster's?");
  }
  const Holder& holder = found->second;
  if (Includes(holder.role, needed)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the token of ", holder.name, " has the role ",
                                                  NameOf(holder.role), ", and this needs ",
                                                  NameOf(needed)));
}

}  // namespace sherd
