#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sherd {

// A certificate authority of one test, which signs certificates for an hour and writes them below a
// directory in PEM.
class CertificateAuthority {
 public:
  // Writes `directory`/`name`.ca.pem.
  CertificateAuthority(std::string directory, std::string name);
  ~CertificateAuthority();
  CertificateAuthority(const CertificateAuthority&) = delete;

  std::string path() const;
  // Writes NAME.pem and NAME.key, over what is there; the certificate is for the hosts, which are
  // DNS names or, as "IP:127.0.0.1", addresses. `expired`: it ended a minute ago.
  struct Files {
    std::string certificate;
    std::string key;
  };
  Files Sign(const std::string& name, const std::vector<std::string>& hosts, bool expired = false);

 private:
  struct Impl;
  const std::string directory_;
  const std::string name_;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sherd
