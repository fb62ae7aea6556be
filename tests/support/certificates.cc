#include "tests/support/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace sherd {
namespace {

constexpr int kHour = 3600;

EVP_PKEY* NewKey() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  SHERD_CHECK(key != nullptr);
  return key;
}

void Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  SHERD_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Not signed yet; valid from an hour ago until `seconds` from now.
X509* NewCertificate(const std::string& name, EVP_PKEY* key, long seconds) {
  static int serial = 0;
  X509* certificate = X509_new();
  SHERD_CHECK(certificate != nullptr);
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -kHour);
  X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

// Whoever reads the file sees it whole.
template <typename Write>
void WriteFile(const std::string& path, Write write) {
  const std::string temporary = absl::StrCat(path, ".new");
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  SHERD_CHECK(file != nullptr);
  SHERD_CHECK(write(file) == 1);
  SHERD_CHECK(std::fclose(file) == 0);
  std::filesystem::rename(temporary, path);
}

}  // namespace

struct CertificateAuthority::Impl {
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
};

CertificateAuthority::CertificateAuthority(std::string directory, std::string name)
    : directory_(std::move(directory)), name_(std::move(name)), impl_(std::make_unique<Impl>()) {
  impl_->key = NewKey();
  impl_->certificate = NewCertificate(name_, impl_->key, kHour);
  X509_set_issuer_name(impl_->certificate, X509_get_subject_name(impl_->certificate));
  Extend(impl_->certificate, impl_->certificate, NID_basic_constraints, "critical,CA:TRUE");
  SHERD_CHECK(X509_sign(impl_->certificate, impl_->key, EVP_sha256()) > 0);
  WriteFile(path(), [&](std::FILE* file) { return PEM_write_X509(file, impl_->certificate); });
}

CertificateAuthority::~CertificateAuthority() {
  X509_free(impl_->certificate);
  EVP_PKEY_free(impl_->key);
}

std::string CertificateAuthority::path() const {
  return absl::StrCat(directory_, "/", name_, ".ca.pem");
}

CertificateAuthority::Files CertificateAuthority::Sign(const std::string& name,
                                                       const std::vector<std::string>& hosts,
                                                       bool expired) {
  EVP_PKEY* key = NewKey();
  X509* certificate = NewCertificate(name, key, expired ? -60 : kHour);
  X509_set_issuer_name(certificate, X509_get_subject_name(impl_->certificate));
  const std::string names =
      absl::StrJoin(hosts, ",", [](std::string* out, const std::string& host) {
        absl::StrAppend(out, absl::StartsWith(host, "IP:") ? "" : "DNS:", host);
      });
  if (!names.empty()) Extend(certificate, impl_->certificate, NID_subject_alt_name, names);
  SHERD_CHECK(X509_sign(certificate, impl_->key, EVP_sha256()) > 0);
  const Files files{absl::StrCat(directory_, "/", name, ".pem"),
                    absl::StrCat(directory_, "/", name, ".key")};
  WriteFile(files.key, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  WriteFile(files.certificate, [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
  X509_free(certificate);
  EVP_PKEY_free(key);
  return files;
}

}  // namespace sherd
