// Blocks run one after the other, and the threads of one as fibers in turns: a fiber runs until it
// meets a collective whose others are not there yet.
//
// swapcontext makes two system calls to save signal masks that nobody changes, so it only starts a
// fiber, and setjmp switches from then on; sanitizers.h says what is different for those. A
// fortified longjmp refuses to leave the stack it is on, which is all it is for here.
#undef _FORTIFY_SOURCE
#include <cuda_runtime.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tests/emulated_gpu/sanitizers.h"

// Where the linker puts the shared memory of all kernels, by names of its own; null when there is
// none, or it is elsewhere. NOLINTNEXTLINE(bugprone-reserved-identifier)
extern char __start_emulated_shared[] __attribute__((weak));
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern char __stop_emulated_shared[] __attribute__((weak));

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace emulated {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kArenaBytes = size_t{8} << 30;  // addresses; pages come when they are touched
constexpr size_t kAlignment = 256;
constexpr size_t kGap = kAlignment;  // behind every allocation

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s (block %u, thread %u)\n", what, blockIdx.x, threadIdx.x);
  std::abort();
}

// Counts the threads that have come; a generation ends when all have.
struct Gate {
  int expected = 0;
  int arrived = 0;
  uint64_t generation = 0;
};

struct Warp {
  Gate gate;
  // Two generations: a lane may be one collective ahead of those that still read the last.
  std::array<std::array<uint64_t, kWarp>, 2> values;
  int kind = 0;  // of the collective that is under way
};

// A place to go on from.
struct Context {
  ucontext_t full;
  jmp_buf jump;
  bool jumps = false;      // whether `jump` is where it stands
  void* thread = nullptr;  // a sanitizer's name for it
};

void switch_context(Context& from, Context& to) {
  become_thread(to.thread);
  if (kIsSanitized) {
    swapcontext(&from.full, &to.full);
    return;
  }
  from.jumps = true;
  if (_setjmp(from.jump) != 0) return;
  if (to.jumps) _longjmp(to.jump, 1);
  setcontext(&to.full);
}

struct Fiber {
  Context context;
  std::unique_ptr<std::byte[]> stack;
  const Gate* waits_for = nullptr;
  uint64_t until = 0;  // the generation that it waits to see
  bool done = false;
};

struct Block {
  std::deque<Fiber> fibers;  // that never move
  std::vector<Warp> warps;
  Gate gate;
  Context scheduler;
  const std::function<void()>* thread = nullptr;
  size_t running = 0;
  char launch = 0, end = 0;      // what its threads and the scheduler agree on
  std::array<char, 2> barriers;  // and its threads, at one barrier and at the next
};

Block block;
Order order = Order::kAscending;
Counts counts;

// A fiber serves one thread after another: starting one costs more than most threads do.
void run_fiber() {
  for (;;) {
    observe(&block.launch);
    (*block.thread)();
    publish(&block.end);
    Fiber& fiber = block.fibers[block.running];
    fiber.done = true;
    switch_context(fiber.context, block.scheduler);
  }
}

void start_fiber(Fiber& fiber) {
  fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  ucontext_t& start = fiber.context.full;
  getcontext(&start);
  start.uc_stack.ss_sp = fiber.stack.get();
  start.uc_stack.ss_size = kStackBytes;
  start.uc_link = nullptr;
  makecontext(&start, run_fiber, 0);
  fiber.context.thread = make_thread();
}

void arrive_and_wait(Gate& gate) {
  if (++gate.arrived == gate.expected) {
    gate.arrived = 0;
    ++gate.generation;
    return;
  }
  Fiber& fiber = block.fibers[block.running];
  fiber.waits_for = &gate;
  fiber.until = gate.generation + 1;
  switch_context(fiber.context, block.scheduler);
}

// Nothing may rely on what another block left in its shared memory.
void spoil_shared_memory() {
  if (__start_emulated_shared == nullptr) return;
  std::memset(__start_emulated_shared, 0xFF,
              static_cast<size_t>(__stop_emulated_shared - __start_emulated_shared));
}

void run_block(size_t threads) {
  spoil_shared_memory();
  block.scheduler.thread = this_thread();
  while (block.fibers.size() < threads) start_fiber(block.fibers.emplace_back());
  block.warps.assign(threads / kWarp, Warp{});
  for (Warp& warp : block.warps) warp.gate.expected = kWarp;
  block.gate = Gate{.expected = static_cast<int>(threads)};
  for (size_t i = 0; i < threads; ++i) {
    block.fibers[i].waits_for = nullptr;
    block.fibers[i].done = false;
  }
  publish(&block.launch);
  for (size_t left = threads; left > 0;) {
    bool moved = false;
    for (size_t turn = 0; turn < threads; ++turn) {
      const size_t i = order == Order::kAscending ? turn : threads - 1 - turn;
      Fiber& fiber = block.fibers[i];
      if (fiber.done) continue;
      if (fiber.waits_for != nullptr && fiber.waits_for->generation < fiber.until) continue;
      fiber.waits_for = nullptr;
      moved = true;
      block.running = i;
      threadIdx = {static_cast<unsigned>(i), 0, 0};
      switch_context(block.scheduler, fiber.context);
      if (fiber.done) --left;
    }
    if (!moved) fail("deadlock: some threads wait for others that have ended or wait elsewhere");
  }
  observe(&block.end);
}

// All device memory: one range of addresses that host code may not touch.
struct Arena {
  std::byte* begin = nullptr;
  std::map<size_t, size_t> used;  // offset -> bytes
  size_t limit_bytes = kArenaBytes;
  size_t used_bytes = 0;
  int open = 0;

  Arena() {
    void* memory =
        mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no address space");
    begin = static_cast<std::byte*>(memory);
  }
  void protect(int protection) const {
    if (mprotect(begin, kArenaBytes, protection) != 0) fail("mprotect failed");
  }
};

Arena& arena() {
  static Arena the_arena;
  return the_arena;
}

// While one lives, device memory may be touched.
struct OnDevice {
  OnDevice() {
    if (arena().open++ == 0) arena().protect(PROT_READ | PROT_WRITE);
  }
  ~OnDevice() {
    if (--arena().open == 0) arena().protect(PROT_NONE);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

cudaDeviceProp device_properties = default_device();
std::set<EmulatedStream*> streams;

}  // namespace

}  // namespace emulated

using emulated::OnDevice;

struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
struct EmulatedStream {
  std::deque<std::function<void()>> queue;
  std::unique_ptr<EmulatedGraph> capture;
  int64_t enqueued = 0;
  int64_t finished = 0;
};
struct EmulatedEvent {
  EmulatedStream* stream = nullptr;
  int64_t position = 0;
};

namespace emulated {
namespace {

void drain(EmulatedStream* stream, int64_t position) {
  const OnDevice touch;
  while (stream->finished < position) {
    const std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->finished;
    work();
  }
}

bool captures() {
  return std::any_of(streams.begin(), streams.end(),
                     [](const EmulatedStream* stream) { return stream->capture != nullptr; });
}

cudaError_t enqueue(EmulatedStream* stream, std::function<void()> work) {
  if (stream == nullptr) return cudaErrorInvalidValue;  // we use no default stream
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
  } else {
    stream->queue.push_back(std::move(work));
    ++stream->enqueued;
  }
  return cudaSuccess;
}

cudaError_t wait_for(EmulatedStream* stream, int64_t position) {
  if (captures()) return cudaErrorStreamCaptureUnsupported;
  ++counts.waits;
  drain(stream, position);
  return cudaSuccess;
}

}  // namespace

cudaDeviceProp default_device() {
  cudaDeviceProp properties = {};
  std::snprintf(properties.name, sizeof properties.name, "Emulated GPU");
  properties.totalGlobalMem = kArenaBytes;
  properties.major = 9;
  properties.multiProcessorCount = 2;
  properties.l2CacheSize = 1 << 20;
  return properties;
}

bool has_kernels() {
  return device_properties.major == default_device().major;
}

void set_device(const cudaDeviceProp& properties, int64_t memory_bytes) {
  device_properties = properties;
  arena().limit_bytes = std::min(kArenaBytes, static_cast<size_t>(memory_bytes));
}

void set_order(Order wanted) {
  order = wanted;
}

Counts take_counts() {
  return std::exchange(counts, Counts{});
}

cudaError_t allocate(void** memory, size_t bytes) {
  if (captures()) return cudaErrorStreamCaptureUnsupported;
  Arena& a = arena();
  const size_t padded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (a.used_bytes + padded > a.limit_bytes) return cudaErrorMemoryAllocation;
  size_t at = 0;  // first fit
  for (const auto& [offset, length] : a.used) {
    if (offset - at >= padded + kGap) break;
    at = offset + length + kGap;
  }
  if (at + padded + kGap > kArenaBytes) return cudaErrorMemoryAllocation;
  a.used[at] = padded;
  a.used_bytes += padded;
  *memory = a.begin + at;
  const OnDevice touch;
  allow(*memory, padded);
  std::memset(*memory, 0xCD, padded);  // nothing may rely on zeros
  forbid(a.begin + at + bytes, padded + kGap - bytes);
  return cudaSuccess;
}

cudaError_t allocate_host(void** memory, size_t bytes) {
  if (captures()) return cudaErrorStreamCaptureUnsupported;
  const size_t padded = (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096;
  *memory = std::aligned_alloc(4096, padded);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  const dim3 grid = config.gridDim;
  const dim3 threads = config.blockDim;
  if (grid.x == 0 || grid.x > 0x7fffffffu || grid.y != 1 || grid.z != 1 || threads.x == 0 ||
      threads.x > 1024 || threads.x % kWarp != 0 || threads.y != 1 || threads.z != 1 ||
      config.dynamicSmemBytes != 0) {
    return cudaErrorInvalidConfiguration;
  }
  return enqueue(config.stream, [grid, threads, body = std::move(thread)] {
    ++counts.launches;
    gridDim = grid;
    blockDim = threads;
    block.thread = &body;
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = {x, 0, 0};
      run_block(threads.x);
    }
  });
}

uint64_t exchange(uint64_t value, int source_lane, int kind) {
  const size_t thread = block.running;
  Warp& warp = block.warps[thread / kWarp];
  if (warp.gate.arrived == 0) warp.kind = kind;
  if (warp.kind != kind) fail("lanes of a warp are at different collectives");
  auto& values = warp.values[warp.gate.generation % 2];
  values[thread % kWarp] = value;
  arrive_and_wait(warp.gate);
  return values[static_cast<size_t>(source_lane)];
}

void wait_for_block() {
  char* barrier = &block.barriers[block.gate.generation % 2];
  publish(barrier);
  arrive_and_wait(block.gate);
  observe(barrier);
}

}  // namespace emulated

using namespace emulated;  // NOLINT: the functions below are CUDA's, in the global namespace

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                 ? "no error"
         : error == cudaErrorMemoryAllocation ? "out of memory"
                                              : "refused by the emulated GPU";
}
const char* cudaGetErrorName(cudaError_t error) {
  return cudaGetErrorString(error);
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_properties.major == 0 ? 0 : 1;
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = device_properties;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = arena().limit_bytes;
  *free_bytes = arena().limit_bytes - arena().used_bytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  for (EmulatedStream* stream : streams) {
    const cudaError_t error = wait_for(stream, stream->enqueued);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (cudaDeviceSynchronize() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  Arena& a = arena();
  const auto found = a.used.find(static_cast<size_t>(static_cast<std::byte*>(memory) - a.begin));
  if (found == a.used.end()) return cudaErrorInvalidValue;
  const OnDevice touch;
  allow(memory, found->second);
  std::memset(memory, 0xDD, found->second);
  forbid(memory, found->second);
  a.used_bytes -= found->second;
  a.used.erase(found);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (cudaDeviceSynchronize() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  drain(stream, stream->enqueued);
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return wait_for(stream, stream->enqueued);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {stream, stream->enqueued};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->stream == nullptr ? cudaSuccess : wait_for(event->stream, event->position);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1.0F;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return enqueue(stream, [=] { std::memcpy(dst, src, bytes); });
}
cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] { std::memset(dst, value, bytes); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->capture = std::make_unique<EmulatedGraph>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  *graph = stream->capture.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return enqueue(stream, [work = exec->work] {
    ++counts.graph_launches;
    for (const auto& one : work) one();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

}  // extern "C"
