#include "worker/device/open_device.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "kernels/cuda/plugin.h"

namespace sherd {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libsherd_cuda.so";

// What dlopen or dlsym says.
std::string LoaderText() {
  const char* const text = dlerror();
  return text == nullptr ? "no cause given" : text;
}

absl::StatusOr<OpenDevice> LoadBackEnd(const std::string& library) {
  std::error_code error;
  if (!fs::exists(library, error)) {
    return absl::UnavailableError(absl::StrCat("there is no back end for GPUs at ", library,
                                               " (a build with CUDA 12.8 or later makes it)"));
  }
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("the back end for GPUs cannot be loaded: ", LoaderText()));
  }
  const auto build = reinterpret_cast<DeviceLibraryBuild>(dlsym(handle, kDeviceLibraryBuild));
  const auto open = reinterpret_cast<OpenDevice>(dlsym(handle, kOpenDevice));
  if (build == nullptr || open == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(library, " is no back end for GPUs: ", LoaderText()));
  }
  // What crosses the door are objects of C++.
  if (absl::string_view(build()) != kDeviceBuild) {
    return absl::UnavailableError(absl::StrCat(library, " is of another build (", build(),
                                               ") than this worker (", kDeviceBuild, ")"));
  }
  return open;
}

absl::StatusOr<std::unique_ptr<Accelerator>> OpenGpu(int index, const std::string& library) {
  SHERD_ASSIGN_OR_RETURN(const OpenDevice open, LoadBackEnd(library));
  std::string why;
  std::unique_ptr<Accelerator> accelerator(open(index, &why));
  if (accelerator == nullptr) return absl::UnavailableError(why);
  return accelerator;
}

}  // namespace

absl::StatusOr<DeviceChoice> ParseDevice(const std::string& device) {
  if (device == "auto") return DeviceChoice{DeviceChoice::Kind::kAuto, 0};
  if (device == "cpu") return DeviceChoice{DeviceChoice::Kind::kCpu, 0};
  absl::string_view index = device;
  DeviceChoice choice;
  if (absl::ConsumePrefix(&index, "cuda:")) {
    choice.kind = DeviceChoice::Kind::kCuda;
  } else if (!absl::ConsumePrefix(&index, "cpu:")) {
    index = "";
  }
  if (!absl::SimpleAtoi(index, &choice.index) || choice.index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device ", device, " is not a device; use auto, cpu:INDEX or cuda:INDEX, as cuda:0"));
  }
  return choice;
}

absl::StatusOr<OwnDevice> OpenOwnDevice(const DeviceChoice& choice, const std::string& library) {
  OwnDevice own;
  if (choice.kind == DeviceChoice::Kind::kCpu) {
    own.name = absl::StrCat("cpu:", choice.index);
    return own;
  }
  absl::StatusOr<std::unique_ptr<Accelerator>> opened = OpenGpu(choice.index, library);
  if (!opened.ok() && choice.kind == DeviceChoice::Kind::kAuto) {
    own.remark = absl::StrCat("no GPU: ", opened.status().message(), "; running on CPU");
    return own;
  }
  if (!opened.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--device cuda:", choice.index, ": ", opened.status().message()));
  }
  own.accelerator = *std::move(opened);
  own.name = std::string(own.accelerator->name());
  own.remark = absl::StrCat("running on ", own.name, ", ", own.accelerator->model(), " with ",
                            own.accelerator->memory_bytes() >> 20, " MiB");
  return own;
}

std::string DefaultDeviceLibrary() {
  std::error_code error;
  const fs::path directory = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path installed = directory.parent_path() / "lib" / "sherd" / kLibrary;
  return fs::exists(installed, error) ? installed.string() : (directory / kLibrary).string();
}

}  // namespace sherd
