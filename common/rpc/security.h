#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sherd {

// How a process proves who it is, and whom it believes. Paths of files; "" for none.
struct SecurityOptions {
  // PEM: who signs the certificates of the other side.
  std::string ca = {};
  // PEM: this process's own, with what leads to a certificate of `ca`; and its private key.
  std::string certificate = {};
  std::string key = {};
  // Of whoever calls: the bearer token, alone in the file.
  std::string token = {};
  // Of whoever calls: the name in the coordinator's certificate. "": the host that is called.
  std::string server_name = {};
  // Plain text, also where others may listen.
  bool insecure = false;
};

// The environment variables that stand for the options.
inline constexpr const char* kSecurityVariables[] = {
    "SHERD_TLS_CA",     "SHERD_TLS_CERTIFICATE", "SHERD_TLS_KEY",
    "SHERD_TOKEN_FILE", "SHERD_TLS_SERVER_NAME", "SHERD_INSECURE"};

// Adds --tls-ca, --tls-certificate, --tls-key and --insecure to `app`, which fills in `options`
// when it parses; for whoever calls --token-file and --tls-server-name too.
void DeclareSecurity(CLI::App& app, SecurityOptions& options);
void DeclareCallerSecurity(CLI::App& app, SecurityOptions& options);

// OK when `address`, "HOST:PORT", may be served or called with these: with certificates, with
// `insecure`, or in plain text on loopback. kInvalidArgument, with a sentence that names the flags,
// for half of the files, for certificates and `insecure` together, and for plain text elsewhere.
absl::Status CheckSecurity(const SecurityOptions& options, const std::string& address);

// As CheckSecurity; then each side must present a certificate that the other's `ca` has signed.
// Files that change are read again within seconds, connections that exist stay. kInvalidArgument,
// naming the file, when one cannot be read, is no PEM, or key and certificate do not belong
// together.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const SecurityOptions& options, const std::string& address);
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const SecurityOptions& options,
                                                           const std::string& address,
                                                           grpc::ChannelArguments arguments);

// What a caller adds to its metadata under "authorization": "Bearer TOKEN"; "" without a token
// file. kInvalidArgument, naming the file but never the token, when that cannot be read or holds
// none.
absl::StatusOr<std::string> ReadAuthorization(const SecurityOptions& options);

}  // namespace sherd
