// A back end of another build than the worker that opens it.
#include <string>

extern "C" __attribute__((visibility("default"))) const char* sherd_device_library_build() {
  return "sherd 0 of a test";
}

extern "C" __attribute__((visibility("default"))) void* sherd_open_device(int, std::string*) {
  return nullptr;
}
