#pragma once

#include <string>

#include "absl/base/config.h"
#include "kernels/cuda/device_interface.h"  // made when it is built: cmake/InterfaceHash.cmake

// The door of a library that holds a back end for accelerators: two functions with C names, so that
// they can be found by name. What crosses it are objects of C++, so library and worker must be of
// one build, which the first tells.

namespace sherd {

class Accelerator;

// SHERD_VERSION of the library's build, the compiler's version and Abseil's, and a hash of the
// headers that say what crosses the door.
using DeviceLibraryBuild = const char* (*)();
inline constexpr char kDeviceLibraryBuild[] = "sherd_device_library_build";
#define SHERD_TEXT_OF(value) SHERD_TEXT(value)
#define SHERD_TEXT(value) #value
inline constexpr char kDeviceBuild[] =
    "sherd " SHERD_VERSION ", compiler " __VERSION__
    ", abseil " SHERD_TEXT_OF(ABSL_LTS_RELEASE_VERSION) ", interface " SHERD_DEVICE_INTERFACE;
#undef SHERD_TEXT
#undef SHERD_TEXT_OF

// Opens device `index`, the caller's to delete; null with the cause in `why`, a clause without a
// full stop that says what is missing.
using OpenDevice = Accelerator* (*)(int index, std::string* why);
inline constexpr char kOpenDevice[] = "sherd_open_device";

}  // namespace sherd
