// Runs a test binary as if the processor had fewer instructions: SHERD_TEST_INSTRUCTION_SET is
// "avx2" or "portable"; ctest sets it, and oneDNN's own setting beside it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "hwy/targets.h"

namespace sherd {
namespace {

class InstructionSet : public testing::Environment {
 public:
  void SetUp() override {
    const char* wanted = std::getenv("SHERD_TEST_INSTRUCTION_SET");
    if (wanted == nullptr) return;
    const int64_t targets = std::string(wanted) == "avx2" ? HWY_AVX2 : HWY_SCALAR;
    const int64_t here = hwy::SupportedTargets() & (targets | HWY_SCALAR);
    hwy::SetSupportedTargetsForTest(here);
    hwy::GetChosenTarget().Update(here);
  }
};

[[maybe_unused]] const auto* const kEnvironment =
    testing::AddGlobalTestEnvironment(new InstructionSet);

}  // namespace
}  // namespace sherd
