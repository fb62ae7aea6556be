#pragma once

#include <string>

// The door of a library that holds a back end for accelerators: two functions with C names, so that
// they can be found by name. Library and worker are of one build, which the first tells.

namespace sherd {

class Accelerator;

// SHERD_VERSION of the library's build, and the compiler's.
using DeviceLibraryBuild = const char* (*)();
inline constexpr char kDeviceLibraryBuild[] = "sherd_device_library_build";
inline constexpr char kDeviceBuild[] = "sherd " SHERD_VERSION " " __VERSION__;

// Opens device `index`, the caller's to delete; null with the cause in `why`, a clause without a
// full stop that says what is missing.
using OpenDevice = Accelerator* (*)(int index, std::string* why);
inline constexpr char kOpenDevice[] = "sherd_open_device";

}  // namespace sherd
