#include "cuda/cuda_runtime.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <memory>
#include <string>

#include "cuda/kernel/kernels.h"
#include "os/cpu_set.h"

namespace ringdist::gpu {
namespace {

// Convert the opaque handles of CudaApi to CUDA's types.
cudaStream_t of(Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t of_event(Event event) { return static_cast<cudaEvent_t>(event); }

// Makes an Error of a result. Clears CUDA's last error of this thread, so that it is not reported a
// second time by a later call.
Error error_of(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return {};
  (void)cudaGetLastError();
  return Error(ErrorKind::kSystem, std::string("CUDA: ") + call + ": " + cudaGetErrorString(code) +
                                       " (" + cudaGetErrorName(code) + ")");
}

// Returns `value`, or the error of `code`.
template <typename T>
Result<T> result_of(cudaError_t code, const char* call, T value) {
  if (Error error = error_of(code, call)) return error;
  return value;
}

// Permits calls while another thread captures a stream into a graph. By default CUDA refuses such
// calls in this thread and ends the capture. In this mode it does neither.
class AllowsCaptures {
 public:
  AllowsCaptures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AllowsCaptures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllowsCaptures(const AllowsCaptures&) = delete;
  AllowsCaptures& operator=(const AllowsCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeThreadLocal;
};

// Signature of cuStreamWaitValue32 and cuStreamWriteValue32.
using OnValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

// Returns a function of the driver, because the runtime has no such call. Returns null if the
// driver is too old.
OnValue find(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found);
  const bool there = code == cudaSuccess && found == cudaDriverEntryPointSuccess;
  return there ? reinterpret_cast<OnValue>(entry) : nullptr;
}

// Calls a function of the driver on a flag.
Error call_on(OnValue function, const char* name, Stream stream, const uint32_t* flag,
              uint32_t value, unsigned int flags) {
  if (function == nullptr)
    return Error(ErrorKind::kSystem, std::string("CUDA: the driver has no ") + name +
                                         ": it must be of CUDA 12 or later");
  const CUresult code =
      function(static_cast<CUstream>(stream), reinterpret_cast<CUdeviceptr>(flag), value, flags);
  if (code == CUDA_SUCCESS) return {};
  return Error(ErrorKind::kSystem,
               std::string("CUDA: ") + name + ": error " + std::to_string(static_cast<int>(code)));
}

// Runs a std::function that call() allocated, and frees it. CUDA calls it on a thread of its own.
void CUDART_CB run_and_free(void* fn) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(fn));
  (*owned)();
}

}  // namespace

Result<std::array<uint8_t, 16>> CudaRuntime::identity(int device) {
  cudaDeviceProp found{};
  if (Error error = error_of(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties"))
    return error;
  std::array<uint8_t, 16> out{};
  std::memcpy(out.data(), found.uuid.bytes, out.size());
  return out;
}

Result<std::string> CudaRuntime::address(int device) {
  std::array<char, 32> out{};
  const cudaError_t code = cudaDeviceGetPCIBusId(out.data(), out.size(), device);
  // The kernel writes addresses in lower case.
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return result_of(code, "cudaDeviceGetPCIBusId", std::string(out.data()));
}

Result<int> CudaRuntime::use(int device) {
  int before = 0;
  if (Error error = error_of(cudaGetDevice(&before), "cudaGetDevice")) return error;
  // Sets the device even if it is current already, because calls of the driver need its context in
  // this thread.
  return result_of(cudaSetDevice(device), "cudaSetDevice", before);
}

Result<Stream> CudaRuntime::make_stream() {
  int least = 0;
  int greatest = 0;
  if (Error error = error_of(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                             "cudaDeviceGetStreamPriorityRange"))
    return error;
  cudaStream_t stream = nullptr;
  const cudaError_t code = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  return result_of<Stream>(code, "cudaStreamCreateWithPriority", stream);
}

void CudaRuntime::free_stream(Stream stream) { (void)cudaStreamDestroy(of(stream)); }

Result<Event> CudaRuntime::make_event() {
  cudaEvent_t event = nullptr;
  const cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  return result_of<Event>(code, "cudaEventCreateWithFlags", event);
}

void CudaRuntime::free_event(Event event) { (void)cudaEventDestroy(of_event(event)); }

Error CudaRuntime::record(Event event, Stream stream) {
  return error_of(cudaEventRecord(of_event(event), of(stream)), "cudaEventRecord");
}

Error CudaRuntime::wait(Stream stream, Event event) {
  return error_of(cudaStreamWaitEvent(of(stream), of_event(event), 0), "cudaStreamWaitEvent");
}

Result<bool> CudaRuntime::reached(Event event) {
  const AllowsCaptures guard;
  const cudaError_t code = cudaEventQuery(of_event(event));
  if (code == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  return result_of(code, "cudaEventQuery", true);
}

Result<bool> CudaRuntime::captures(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(of(stream), &status);
  return result_of(code, "cudaStreamIsCapturing", status != cudaStreamCaptureStatusNone);
}

Result<void*> CudaRuntime::allocate(size_t bytes, Stream stream) {
  void* memory = nullptr;
  const cudaError_t code = cudaMallocAsync(&memory, bytes, of(stream));
  return result_of(code, "cudaMallocAsync", memory);
}

void CudaRuntime::free(void* memory, Stream stream) { (void)cudaFreeAsync(memory, of(stream)); }

Result<void*> CudaRuntime::allocate_pinned(size_t bytes) {
  int device = 0;
  if (Error error = error_of(cudaGetDevice(&device), "cudaGetDevice")) return error;
  // The calling thread moves to CPUs near the device, so that the pages are of its NUMA node.
  const auto where = address(device);
  const ScopedAffinity near(where.ok() ? CpuSet::near(where.value()) : CpuSet());
  void* memory = nullptr;
  const cudaError_t code =
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  return result_of(code, "cudaHostAlloc", memory);
}

void CudaRuntime::free_pinned(void* memory) { (void)cudaFreeHost(memory); }

Error CudaRuntime::pin(void* memory, size_t bytes) {
  const auto flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  return error_of(cudaHostRegister(memory, bytes, flags), "cudaHostRegister");
}

void CudaRuntime::unpin(void* memory) { (void)cudaHostUnregister(memory); }

Error CudaRuntime::copy(void* to, const void* from, size_t bytes, Stream stream) {
  const cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream));
  return error_of(code, "cudaMemcpyAsync");
}

Error CudaRuntime::clear(void* memory, size_t bytes, Stream stream) {
  return error_of(cudaMemsetAsync(memory, 0, bytes, of(stream)), "cudaMemsetAsync");
}

Error CudaRuntime::call(Stream stream, std::function<void()> fn) {
  auto owned = std::make_unique<std::function<void()>>(std::move(fn));
  const cudaError_t code = cudaLaunchHostFunc(of(stream), &run_and_free, owned.get());
  // run_and_free() owns it from here on, and may have freed it already.
  if (code == cudaSuccess) (void)owned.release();
  return error_of(code, "cudaLaunchHostFunc");
}

Error CudaRuntime::wait_flag(Stream stream, const uint32_t* flag, uint32_t value) {
  constexpr const char* kName = "cuStreamWaitValue32";
  // GEQ compares the signed difference *flag - value with 0, so that counters may wrap.
  static const OnValue kWait = find(kName);
  return call_on(kWait, kName, stream, flag, value, CU_STREAM_WAIT_VALUE_GEQ);
}

Error CudaRuntime::write_flag(Stream stream, uint32_t* flag, uint32_t value) {
  constexpr const char* kName = "cuStreamWriteValue32";
  // DEFAULT makes the driver order the write behind earlier writes to memory.
  static const OnValue kWrite = find(kName);
  return call_on(kWrite, kName, stream, flag, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

Error CudaRuntime::encode(KernelCodec coding, CallSpan<EncodeCall> calls, Stream stream) {
  return error_of(static_cast<cudaError_t>(gpu::encode(coding, calls, stream)), "encode");
}

Error CudaRuntime::decode(KernelCodec coding, CallSpan<DecodeCall> calls, Stream stream) {
  return error_of(static_cast<cudaError_t>(gpu::decode(coding, calls, stream)), "decode");
}

Error CudaRuntime::reduce(const ReduceCall& call, Stream stream) {
  return error_of(static_cast<cudaError_t>(gpu::reduce(call, stream)), "reduce");
}

Error CudaRuntime::run(CallSpan<Elements> calls, Stream stream) {
  return error_of(static_cast<cudaError_t>(gpu::run(calls, stream)), "run");
}

}  // namespace ringdist::gpu
