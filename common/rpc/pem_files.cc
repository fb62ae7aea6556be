#include "common/rpc/pem_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
struct CloseBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using File = std::unique_ptr<BIO, CloseBio>;

absl::Status Wrong(const char* flag, const std::string& path, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, " ", what));
}

absl::StatusOr<File> Open(const char* flag, const std::string& path) {
  File file(BIO_new_file(path.c_str(), "r"));
  if (file != nullptr) return file;
  return Wrong(flag, path, absl::StrCat("cannot be read: ", std::strerror(errno)));
}

// No pass phrase is asked for: nobody sits at a daemon.
int NoPassPhrase(char*, int, int, void*) { return 0; }

absl::StatusOr<Certificate> ReadCertificate(const char* flag, const std::string& path) {
  SHERD_ASSIGN_OR_RETURN(const File file, Open(flag, path));
  Certificate certificate(PEM_read_bio_X509(file.get(), nullptr, NoPassPhrase, nullptr));
  if (certificate == nullptr) return Wrong(flag, path, "holds no certificate in PEM");
  if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    return Wrong(flag, path, "is not valid yet; is this machine's clock right?");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return Wrong(flag, path, "is valid no more; renew it");
  }
  return certificate;
}

}  // namespace

absl::Status CheckPemFiles(const std::string& ca, const std::string& certificate,
                           const std::string& key) {
  SHERD_RETURN_IF_ERROR(ReadCertificate("--tls-ca", ca).status());
  SHERD_ASSIGN_OR_RETURN(const Certificate own, ReadCertificate("--tls-certificate", certificate));
  SHERD_ASSIGN_OR_RETURN(const File file, Open("--tls-key", key));
  const Key secret(PEM_read_bio_PrivateKey(file.get(), nullptr, NoPassPhrase, nullptr));
  if (secret == nullptr) {
    return Wrong("--tls-key", key, "holds no private key in PEM without a pass phrase");
  }
  if (X509_check_private_key(own.get(), secret.get()) != 1) {
    return Wrong("--tls-key", key, absl::StrCat("is not the key of ", certificate));
  }
  return absl::OkStatus();
}

}  // namespace sherd
