#include "kernels/cuda/runtime_driver.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/matmul.h"

namespace sherd {
namespace {

static_assert(CudaDriver::kSuccess == cudaSuccess);
static_assert(CudaDriver::kMemoryAllocation == cudaErrorMemoryAllocation);
static_assert(CudaDriver::kNotReady == cudaErrorNotReady);

// Every thread has a current device of its own.
thread_local int current_device = -1;

std::string TextOf(cudaError_t error) {
  return absl::StrCat(cudaGetErrorName(error), " (", static_cast<int>(error),
                      "): ", cudaGetErrorString(error));
}

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

class RuntimeDriver final : public CudaDriver {
 public:
  RuntimeDriver(int index, const cudaDeviceProp& properties)
      : index_(index), properties_(properties) {}

  absl::Status Open() {
    if (const cudaError_t error = MakeCurrent(); error != cudaSuccess) {
      return absl::UnavailableError(absl::StrCat("cudaSetDevice failed: ", TextOf(error)));
    }
    if (const cudaError_t error = cudaRuntimeGetVersion(&runtime_); error != cudaSuccess) {
      return absl::UnavailableError(absl::StrCat("cudaRuntimeGetVersion failed: ", TextOf(error)));
    }
    std::string why;
    if (matmul_.Open(&why) == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("cuBLASLt does not start: ", why));
  }

  std::string Text(Error error) override { return TextOf(static_cast<cudaError_t>(error)); }

  Error Malloc(void** memory, size_t bytes) override {
    return Call([&] { return cudaMalloc(memory, bytes); });
  }
  Error Free(void* memory) override {
    return Call([&] { return cudaFree(memory); });
  }
  Error MallocHost(void** memory, size_t bytes) override {
    return Call([&] { return cudaMallocHost(memory, bytes); });
  }
  Error FreeHost(void* memory) override {
    return Call([&] { return cudaFreeHost(memory); });
  }
  Error HostRegister(void* memory, size_t bytes) override {
    return Call([&] { return cudaHostRegister(memory, bytes, cudaHostRegisterDefault); });
  }
  Error HostUnregister(void* memory) override {
    return Call([&] { return cudaHostUnregister(memory); });
  }
  Error MemGetInfo(size_t* free, size_t* total) override {
    return Call([&] { return cudaMemGetInfo(free, total); });
  }
  Error SetDevice() override { return cudaSetDevice(index_); }

  Error StreamCreate(CUstream_st** stream, bool high_priority) override {
    return Call([&] {
      int lowest = 0, highest = 0;
      const cudaError_t error = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
      if (error != cudaSuccess) return error;
      return cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking,
                                          high_priority ? highest : lowest);
    });
  }
  Error StreamDestroy(CUstream_st* stream) override {
    return Call([&] { return cudaStreamDestroy(stream); });
  }
  Error StreamWaitEvent(CUstream_st* stream, CUevent_st* event) override {
    return Call([&] { return cudaStreamWaitEvent(stream, event, 0); });
  }
  Error EventCreate(CUevent_st** event) override {
    return Call([&] { return cudaEventCreateWithFlags(event, cudaEventDisableTiming); });
  }
  Error TimedEventCreate(CUevent_st** event) override {
    return Call([&] { return cudaEventCreate(event); });
  }
  Error EventElapsedTime(float* milliseconds, CUevent_st* begin, CUevent_st* end) override {
    return Call([&] { return cudaEventElapsedTime(milliseconds, begin, end); });
  }
  Error EventDestroy(CUevent_st* event) override {
    return Call([&] { return cudaEventDestroy(event); });
  }
  Error EventRecord(CUevent_st* event, CUstream_st* stream) override {
    return Call([&] { return cudaEventRecord(event, stream); });
  }
  Error EventQuery(CUevent_st* event) override {
    return Call([&] { return cudaEventQuery(event); });
  }

  Error MemcpyAsync(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    return Call([&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream); });
  }
  Error MemsetAsync(void* memory, int byte, size_t bytes, CUstream_st* stream) override {
    return Call([&] { return cudaMemsetAsync(memory, byte, bytes, stream); });
  }

  bool Computes(const Product& product) override {
    return MakeCurrent() != cudaSuccess || matmul_.Computes(product);
  }
  Error Multiply(const Product& product, CUstream_st* stream, std::string* why) override {
    if (const cudaError_t error = MakeCurrent(); error != cudaSuccess) return error;
    return matmul_.Multiply(product, stream, why) == CUBLAS_STATUS_SUCCESS ? kSuccess : kNoProduct;
  }
  int64_t workspace_bytes() const override { return Matmul::kWorkspaceBytes; }

  std::string model() const override { return properties_.name; }
  std::string uuid() const override {
    const std::string hex = absl::BytesToHexString(absl::string_view(properties_.uuid.bytes, 16));
    return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4),
                        "-", hex.substr(16, 4), "-", hex.substr(20));
  }
  std::string pci_address() const override {
    return absl::StrFormat("%04x:%02x:%02x.0", properties_.pciDomainID, properties_.pciBusID,
                           properties_.pciDeviceID);
  }
  std::string numerics_fingerprint() const override {
    return absl::StrCat(properties_.name, "; compute capability ", properties_.major, ".",
                        properties_.minor, "; cuda ", VersionText(runtime_), "; cublaslt ",
                        cublasLtGetVersion());
  }

 private:
  cudaError_t MakeCurrent() {
    if (current_device == index_) return cudaSuccess;
    const cudaError_t error = cudaSetDevice(index_);
    if (error == cudaSuccess) current_device = index_;
    return error;
  }
  template <typename Body>
  Error Call(const Body& body) {
    cudaError_t error = MakeCurrent();
    if (error == cudaSuccess) error = body();
    // Told here, and not once more by the next launch of a kernel, which asks for the thread's last
    // error: what there was no memory for may fit elsewhere.
    if (error != cudaSuccess) cudaGetLastError();
    return error;
  }

  const int index_;
  const cudaDeviceProp properties_;
  int runtime_ = 0;  // version
  Matmul matmul_;
};

// Whether code for one of the architectures, "80, 90", runs there: of the same major number and no
// newer.
bool HasCodeFor(const cudaDeviceProp& properties) {
  for (const absl::string_view text : absl::StrSplit(SHERD_CUDA_ARCHITECTURES, ", ")) {
    int architecture = 0;
    if (!absl::SimpleAtoi(text, &architecture)) continue;
    if (architecture / 10 == properties.major && architecture % 10 <= properties.minor) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDriver>> MakeRuntimeDriver(int index) {
  // Left alone when there is no driver.
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver) {
    // For the text alone.
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    return absl::UnavailableError(
        driver == 0 ? std::string("no NVIDIA driver is installed (libcuda.so.1)")
                    : absl::StrCat("the NVIDIA driver is for CUDA ", VersionText(driver),
                                   ", this build needs one for ", VersionText(runtime)));
  }
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0)) {
    return absl::UnavailableError("the NVIDIA driver finds no GPU");
  }
  if (counted != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("cudaGetDeviceCount failed: ", TextOf(counted)));
  }
  if (index >= count) {
    return absl::UnavailableError(count == 1
                                      ? std::string("the only GPU is cuda:0")
                                      : absl::StrCat("the GPUs are cuda:0 to cuda:", count - 1));
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("cudaGetDeviceProperties failed: ", TextOf(error)));
  }
  if (!HasCodeFor(properties)) {
    return absl::UnavailableError(
        absl::StrCat("the ", properties.name, " has compute capability ", properties.major, ".",
                     properties.minor, ", this build has kernels for sm_",
                     absl::StrReplaceAll(SHERD_CUDA_ARCHITECTURES, {{", ", ", sm_"}})));
  }
  auto driver = std::make_unique<RuntimeDriver>(index, properties);
  if (absl::Status opened = driver->Open(); !opened.ok()) return opened;
  return driver;
}

}  // namespace sherd
