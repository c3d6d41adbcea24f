// A GPU that is a few hundred lines of host code: the part of the CUDA runtime that this program
// uses, so that the very files that nvcc compiles run under the tests of a machine without a GPU.
//
// A test compiles kernels/*_cuda.cu and runtime/cuda_*.cc as C++ against this header instead of
// NVIDIA's. Each thread of a block is a fiber; a warp's shuffles and a block's barriers wait for
// all their threads, so a collective that some lanes skip is a deadlock that is reported. Streams
// run nothing until somebody waits for them, and device memory cannot be touched by host code, so a
// missing wait or a pointer of the wrong side shows too. Under ThreadSanitizer a missing barrier is
// a data race, under AddressSanitizer a byte behind an allocation is out of bounds (sanitizers.h).
// What it cannot show: races between blocks, registers, and time.
//
// Names are CUDA's own; each does what CUDA documents, for the arguments that this program passes.
// There is no cudaMemcpy: when it returns, what it took from the host may still be on its way, and
// a non-blocking stream, which is the only kind here, does not wait for that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#ifdef __SANITIZE_ADDRESS__  // which watches the ends of arrays in no section but its own
#define __shared__ static
#else
#define __shared__ static __attribute__((section("emulated_shared")))
#endif
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorStreamCaptureUnsupported = 900
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDefault = 4
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

struct EmulatedStream;
struct EmulatedEvent;
struct EmulatedGraph;
using cudaStream_t = EmulatedStream*;
using cudaEvent_t = EmulatedEvent*;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major;
  int minor;
  int multiProcessorCount;
  int integrated;
  int l2CacheSize;
};
struct cudaFuncAttributes {
  int numRegs;
};

extern "C" {
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaFree(void* memory);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
}

namespace emulated {

cudaError_t allocate(void** memory, size_t bytes);
cudaError_t allocate_host(void** memory, size_t bytes);
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);

// In which order the threads of a block get their turns.
enum class Order { kAscending, kDescending };
void set_order(Order order);

// What the program did since the last call; tests read that the fast ways are taken.
struct Counts {
  int64_t launches = 0;        // kernels that ran
  int64_t graph_launches = 0;  // whole graphs that ran
  int64_t waits = 0;           // times that the host waited
};
Counts take_counts();
void set_device(const cudaDeviceProp& properties, int64_t memory_bytes);
cudaDeviceProp default_device();
bool has_kernels();  // whether the device is of the default one's major version

// The collectives, for the running thread.
uint64_t exchange(uint64_t value, int source_lane, int kind);
void wait_for_block();

template <class T>
T shuffle(T value, int source_lane, int kind) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, source_lane, kind);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulated

// The running thread's place.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return emulated::allocate(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** memory, size_t bytes) {
  return emulated::allocate_host(reinterpret_cast<void**>(memory), bytes);
}
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel*) {
  attributes->numRegs = 0;
  return emulated::has_kernels() ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return emulated::launch(*config, [kernel, values] { std::apply(kernel, values); });
}

inline void __syncthreads() {
  emulated::wait_for_block();
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulated::shuffle(value, lane & 31, 2);
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int source = lane + static_cast<int>(delta);
  return emulated::shuffle(value, source < 32 ? source : lane, 3);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::shuffle(value, static_cast<int>(threadIdx.x & 31u) ^ mask, 4);
}
inline int __any_sync(unsigned mask, int condition) {
  int any = condition != 0 ? 1 : 0;
  for (int stride = 16; stride > 0; stride /= 2) any |= __shfl_xor_sync(mask, any, stride);
  return any;
}

// Relaxed, as CUDA's are.
template <class T>
T atomicAdd(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
inline unsigned atomicOr(unsigned* at, unsigned value) {
  return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
  unsigned long long old = __atomic_load_n(at, __ATOMIC_RELAXED);
  // Fibers take turns only at collectives, so nobody comes between.
  if (value < old) __atomic_store_n(at, value, __ATOMIC_RELAXED);
  return old;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
