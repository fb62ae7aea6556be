#include "network_namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/comm/file_descriptor.h"

namespace sherd {
namespace {

bool Ip(const std::string& arguments) {
  return std::system(absl::StrCat("ip ", arguments, " 2>/dev/null").c_str()) == 0;
}

}  // namespace

NetworkNamespaces::NetworkNamespaces() {
  made_ = Ip(absl::StrCat("netns add ", name(0))) && Ip(absl::StrCat("netns add ", name(1))) &&
          Ip(absl::StrCat("link add cable netns ", name(0), " type veth peer name cable netns ",
                          name(1)));
  for (const int side : {0, 1}) {
    const std::string in = absl::StrCat("-n ", name(side), " ");
    made_ = made_ && Ip(absl::StrCat(in, "addr add ", address(side), "/24 dev cable")) &&
            Ip(in + "link set cable up") && Ip(in + "link set lo up");
  }
}

NetworkNamespaces::~NetworkNamespaces() {
  for (const int side : {0, 1}) Ip(absl::StrCat("netns del ", name(side)));
}

std::string NetworkNamespaces::address(int side) const {
  return absl::StrCat("10.77.0.", side + 1);
}

// Unlike that of any other process at work.
std::string NetworkNamespaces::name(int side) const {
  return absl::StrCat("sherd-test-", ::getpid(), "-", side);
}

void NetworkNamespaces::Enter(int side) const {
  const FileDescriptor space(
      ::open(absl::StrCat("/run/netns/", name(side)).c_str(), O_RDONLY | O_CLOEXEC));
  SHERD_CHECK(space.valid() && ::setns(space.get(), CLONE_NEWNET) == 0);
}

void NetworkNamespaces::CutCable() const {
  SHERD_CHECK(Ip(absl::StrCat("-n ", name(1), " link set cable down")));
}

void NetworkNamespaces::SwallowAnswers() const {
  SHERD_CHECK(Ip(absl::StrCat("-n ", name(1), " route add blackhole ", address(0), "/32")));
}

}  // namespace sherd
