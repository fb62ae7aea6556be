#include "common/rpc/security.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/rpc/pem_files.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// Between two looks at files that may have been renewed.
constexpr unsigned kRefreshSeconds = 5;
constexpr size_t kLongestToken = 4096;

bool HasCertificates(const SecurityOptions& options) {
  return !options.ca.empty() || !options.certificate.empty() || !options.key.empty();
}

std::string HostOf(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

// "127.0.0.1", and no name that begins like it.
bool IsLoopbackAddress(const std::string& host) {
  if (host == "::1" || host == "localhost") return true;
  const std::vector<absl::string_view> parts = absl::StrSplit(host, '.');
  int part = 0;
  return parts.size() == 4 && parts[0] == "127" &&
         std::all_of(parts.begin(), parts.end(),
                     [&part](absl::string_view text) { return absl::SimpleAtoi(text, &part); });
}

// Both sides: what they show, and whom they believe.
std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider> Watch(
    const SecurityOptions& options) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      options.key, options.certificate, options.ca, kRefreshSeconds);
}

}  // namespace

void DeclareSecurity(CLI::App& app, SecurityOptions& options) {
  const auto add = [&](const char* flag, std::string& value, const char* variable,
                       const char* help) {
    app.add_option(flag, value, help)->option_text("FILE")->envname(variable);
  };
  add("--tls-ca", options.ca, kSecurityVariables[0],
      "Certificates, in PEM, of whoever signs those of the other side");
  add("--tls-certificate", options.certificate, kSecurityVariables[1],
      "This side's certificate, in PEM");
  add("--tls-key", options.key, kSecurityVariables[2], "Its private key, in PEM");
  app.add_flag("--insecure", options.insecure,
               "Plain text, readable and open to whoever reaches the port")
      ->envname(kSecurityVariables[5]);
}

void DeclareCallerSecurity(CLI::App& app, SecurityOptions& options) {
  DeclareSecurity(app, options);
  app.add_option("--token-file", options.token, "The token that the coordinator knows, in a file")
      ->envname(kSecurityVariables[3])
      ->option_text("FILE");
  app.add_option("--tls-server-name", options.server_name,
                 "The name in the coordinator's certificate (default: the host that is called)")
      ->envname(kSecurityVariables[4])
      ->option_text("NAME");
}

absl::Status CheckSecurity(const SecurityOptions& options, const std::string& address) {
  const bool some = HasCertificates(options);
  if (some && (options.ca.empty() || options.certificate.empty() || options.key.empty())) {
    return absl::InvalidArgumentError(
        "--tls-ca, --tls-certificate and --tls-key belong together: give all three or none");
  }
  if (some && options.insecure) {
    return absl::InvalidArgumentError(
        "--insecure and --tls-certificate contradict each other; leave one of them out");
  }
  if (some || options.insecure || IsLoopbackAddress(HostOf(address))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "plain text at ", address, " is readable and open to whoever reaches it; give --tls-ca, ",
      "--tls-certificate and --tls-key, or say --insecure"));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const SecurityOptions& options, const std::string& address) {
  SHERD_RETURN_IF_ERROR(CheckSecurity(options, address));
  if (!HasCertificates(options)) return grpc::InsecureServerCredentials();
  SHERD_RETURN_IF_ERROR(CheckPemFiles(options.ca, options.certificate, options.key));
  grpc::experimental::TlsServerCredentialsOptions tls(Watch(options));
  tls.watch_root_certs();
  tls.watch_identity_key_cert_pairs();
  tls.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(tls);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const SecurityOptions& options,
                                                           const std::string& address,
                                                           grpc::ChannelArguments arguments) {
  SHERD_RETURN_IF_ERROR(CheckSecurity(options, address));
  if (!HasCertificates(options)) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  SHERD_RETURN_IF_ERROR(CheckPemFiles(options.ca, options.certificate, options.key));
  grpc::experimental::TlsChannelCredentialsOptions tls;
  tls.set_certificate_provider(Watch(options));
  tls.watch_root_certs();
  tls.watch_identity_key_cert_pairs();
  if (!options.server_name.empty()) arguments.SetSslTargetNameOverride(options.server_name);
  return grpc::CreateCustomChannel(address, grpc::experimental::TlsCredentials(tls), arguments);
}

absl::StatusOr<std::string> ReadAuthorization(const SecurityOptions& options) {
  if (options.token.empty()) return "";
  std::ifstream file(options.token);
  std::string text(kLongestToken + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  absl::StripAsciiWhitespace(&text);
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (text.empty() || text.size() > kLongestToken || !printable) {
    return absl::InvalidArgumentError(absl::StrCat("--token-file ", options.token,
                                                   " must be readable and hold one token of 1 to ",
                                                   kLongestToken, " printable characters"));
  }
  return absl::StrCat("Bearer ", text);
}

}  // namespace sherd
