// The door of a library of this version and compiler whose headers were others.
#include <string>

#include "kernels/cuda/plugin.h"

extern "C" __attribute__((visibility("default"))) const char* sherd_device_library_build() {
  static const std::string build = [] {
    std::string text = sherd::kDeviceBuild;
    text.back() = text.back() == '0' ? '1' : '0';
    return text;
  }();
  return build.c_str();
}

extern "C" __attribute__((visibility("default"))) sherd::Accelerator* sherd_open_device(
    int, std::string*) {
  // Whoever comes here has opened it all the same.
  __builtin_trap();
}
