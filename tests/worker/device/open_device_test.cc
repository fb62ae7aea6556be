#include "worker/device/open_device.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using Kind = DeviceChoice::Kind;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr DeviceChoice kAuto{Kind::kAuto, 0};
constexpr DeviceChoice kGpu{Kind::kCuda, 0};

// With --device auto and with cuda:0: the same cause, once as a remark and once as an error.
void ExpectWithout(const std::string& library, const std::string& cause) {
  const absl::StatusOr<OwnDevice> chosen = OpenOwnDevice(kAuto, library);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->accelerator, nullptr);
  EXPECT_EQ(chosen->name, "cpu:0");
  EXPECT_THAT(chosen->remark,
              AllOf(StartsWith("no GPU: "), HasSubstr(cause), EndsWith("; running on CPU")));
  const absl::Status named = OpenOwnDevice(kGpu, library).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(named));
  EXPECT_THAT(std::string(named.message()),
              AllOf(StartsWith("--device cuda:0: "), HasSubstr(cause)));
}

TEST(DeviceChoice, IsAutoOrAKindWithANumber) {
  EXPECT_EQ(ParseDevice("auto")->kind, Kind::kAuto);
  EXPECT_EQ(ParseDevice("cpu")->kind, Kind::kCpu);
  EXPECT_EQ(ParseDevice("cpu:3")->index, 3);
  EXPECT_EQ(ParseDevice("cuda:1")->kind, Kind::kCuda);
  EXPECT_EQ(ParseDevice("cuda:1")->index, 1);
  for (const char* wrong : {"", "cpu:", "cpu:-1", "cuda", "cuda:", "cuda:x", "gpu:0"}) {
    const absl::Status status = ParseDevice(wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong;
    EXPECT_THAT(std::string(status.message()), HasSubstr("use auto, cpu:INDEX or cuda:INDEX"));
  }
}

TEST(OwnDevice, TheProcessorNeedsNoLibrary) {
  const absl::StatusOr<OwnDevice> own = OpenOwnDevice({Kind::kCpu, 2}, "/nowhere");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->name, "cpu:2");
  EXPECT_EQ(own->remark, "");
}

TEST(OwnDevice, ALibraryThatIsMissingOrNoneIsSaid) {
  TemporaryDirectory scratch;
  ExpectWithout(scratch / "libsherd_cuda.so", "there is no back end for GPUs at " + scratch.path());
  ExpectWithout(scratch.Write("text.so", "no library"), "cannot be loaded: ");
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&dlopen), &info), 0);
  ExpectWithout(info.dli_fname, "is no back end for GPUs: ");
}

#ifdef SHERD_TEST_CUDA_LIBRARY
// Either there is a GPU, or what is missing is named.
TEST(OwnDevice, WithoutADriverOrAGpuTheRealBackEndSaysWhatIsMissing) {
  const absl::StatusOr<OwnDevice> own = OpenOwnDevice(kAuto, SHERD_TEST_CUDA_LIBRARY);
  ASSERT_TRUE(own.ok());
  if (own->accelerator != nullptr) {
    EXPECT_EQ(own->name, "cuda:0");
    GTEST_SKIP() << "there is a GPU: " << own->remark;
  }
  EXPECT_THAT(own->remark, ::testing::AnyOf(HasSubstr("no NVIDIA driver is installed"),
                                            HasSubstr("the NVIDIA driver is for CUDA"),
                                            HasSubstr("the NVIDIA driver finds no GPU")));
  ExpectWithout(SHERD_TEST_CUDA_LIBRARY, own->remark.substr(8, 20));
}
#endif

#ifdef SHERD_TEST_SOFTWARE_LIBRARY
TEST(OwnDevice, ABackEndIsOpenedAndItsErrorsArePassedOn) {
  const absl::StatusOr<OwnDevice> own = OpenOwnDevice(kAuto, SHERD_TEST_SOFTWARE_LIBRARY);
  ASSERT_TRUE(own.ok());
  ASSERT_NE(own->accelerator, nullptr);
  EXPECT_EQ(own->name, "cuda:0");
  EXPECT_EQ(own->remark, "running on cuda:0, software device with 256 MiB");
  const absl::Status error = OpenOwnDevice({Kind::kCuda, 1}, SHERD_TEST_SOFTWARE_LIBRARY).status();
  EXPECT_EQ(error.message(), "--device cuda:1: the only GPU is cuda:0");
}

// What crosses the door are objects of C++.
TEST(OwnDevice, ABackEndOfAnotherBuildIsRefused) {
  ExpectWithout(SHERD_TEST_OTHER_BUILD_LIBRARY,
                "is of another build (sherd 0 of a test) than this worker (sherd ");
}

// Of one version and compiler, but virtual functions stand elsewhere.
TEST(OwnDevice, ABackEndOfOtherHeadersIsRefused) {
  ExpectWithout(SHERD_TEST_OTHER_INTERFACE_LIBRARY, "is of another build (sherd ");
}
#endif

}  // namespace
}  // namespace sherd
