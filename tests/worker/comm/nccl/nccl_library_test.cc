// The library as it is installed, where it is; no GPU is needed to ask it for its version.
#include "worker/comm/nccl/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <iostream>
#include <string>
#include <vector>

namespace sherd {
namespace {

// The libraries that this program itself asks the dynamic linker for.
std::vector<std::string> Linked() {
  const char* names = nullptr;
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  }
  std::vector<std::string> libraries;
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED) libraries.emplace_back(names + entry->d_un.d_val);
  }
  return libraries;
}

TEST(NcclLibrary, WhoCanOpenItIsNotLinkedWithIt) {
  EXPECT_THAT(Linked(), testing::Contains(testing::StartsWith("libc.so")));
  EXPECT_THAT(Linked(), testing::Each(testing::Not(testing::AnyOf(
                            testing::StartsWith("libnccl"), testing::StartsWith("libcuda")))));
}

TEST(NcclLibrary, HasEveryEntryPointAndTellsItsVersion) {
  const auto nccl = OpenNccl({kNcclLibrary, SHERD_NCCL_LIBRARY});
  if (absl::IsUnavailable(nccl.status()) || absl::IsUnimplemented(nccl.status())) {
    GTEST_SKIP() << "NO NCCL ON THIS MACHINE, ITS ENTRY POINTS ARE NOT CHECKED: "
                 << nccl.status().message();
  }
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  std::cout << "NCCL " << (*nccl)->version() << "\n";
  EXPECT_GE((*nccl)->version(), 21900);
  EXPECT_THAT((*nccl)->Text(NcclResult::kRemoteError, nullptr), testing::HasSubstr("remote"));
}

TEST(NcclLibrary, SaysWhereItWasLookedFor) {
  const auto nccl = OpenNccl({"libnccl-that-is-not-there.so"});
  ASSERT_FALSE(nccl.ok());
  if (absl::IsUnimplemented(nccl.status())) GTEST_SKIP() << nccl.status().message();
  EXPECT_EQ(nccl.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nccl.status().message()),
              testing::HasSubstr("libnccl-that-is-not-there.so"));
}

TEST(NcclLibrary, RefusesALibraryWithoutItsEntryPoints) {
  const auto nccl = OpenNccl({"libc.so.6"});
  ASSERT_FALSE(nccl.ok());
  if (absl::IsUnimplemented(nccl.status())) GTEST_SKIP() << nccl.status().message();
  EXPECT_EQ(nccl.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(nccl.status().message()),
              testing::HasSubstr("libc.so.6 has no ncclGetVersion"));
}

}  // namespace
}  // namespace sherd
