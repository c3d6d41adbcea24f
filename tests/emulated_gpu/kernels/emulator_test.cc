// What the emulated GPU notices, which is what tests on it are worth.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "kernels/warp_cuda.h"
#include "tests/gpu/device_array.h"

namespace k3 {
namespace {

using test::DeviceArray;
using test::the_stream;

__global__ void sum_of_half_a_warp(int* y) {
  int value = 1;
  if (threadIdx.x < 16) value = cuda::add_lanes(value);
  y[threadIdx.x] = value;
}

__global__ void skip_the_barrier() {
  if (threadIdx.x == 40) return;
  __syncthreads();
}

__global__ void use_two_collectives(int* y) {
  y[threadIdx.x] = threadIdx.x < 16 ? __shfl_xor_sync(cuda::kAllLanes, 1, 1)
                                    : __shfl_down_sync(cuda::kAllLanes, 1, 1u);
}

__global__ void reverse_block(const int* x, int* y) {
  __shared__ int held[64];
  held[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = held[63 - threadIdx.x];
}

[[maybe_unused]] __global__ void reverse_block_without_barrier(const int* x, int* y) {
  __shared__ int held[64];
  held[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = held[63 - threadIdx.x];
}

[[maybe_unused]] __global__ void pass_values_on_by_shuffles(const int* x, int* y) {
  y[threadIdx.x] = x[threadIdx.x];
  const int sum = cuda::from_first_lane(cuda::add_lanes(1));
  if (threadIdx.x < 32) y[threadIdx.x] = y[31 - threadIdx.x] + sum;
}

[[maybe_unused]] __global__ void copy_one_more(const int* x, int* y) {
  y[threadIdx.x] = x[threadIdx.x + 1];
}

[[maybe_unused]] __global__ void let_the_first_block_write(int* y) {
  __shared__ int held;
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) held = 7;
  y[blockIdx.x] = held;
}

TEST(EmulatedGpu, RunsBarriersAcrossWarps) {
  std::vector<int> values;
  for (int i = 0; i < 64; ++i) values.push_back(i);
  DeviceArray<int> x(values);
  DeviceArray<int> y(64);
  ASSERT_EQ(cuda::launch(reverse_block, 1, 64, the_stream(), x.data(), y.data()), cudaSuccess);
  EXPECT_EQ(y.values(), std::vector<int>(values.rbegin(), values.rend()));
}

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), int threads, Arguments... arguments) {
  (void)cuda::launch(kernel, 1, threads, the_stream(), arguments...);
  (void)cudaStreamSynchronize(the_stream());
}

TEST(EmulatedGpuDeathTest, ReportsThreadsThatSkipACollective) {
  DeviceArray<int> y(32);
  EXPECT_DEATH(run(sum_of_half_a_warp, 32, y.data()), "deadlock");
  EXPECT_DEATH(run(skip_the_barrier, 64), "deadlock");
}

#ifdef __SANITIZE_THREAD__
TEST(EmulatedGpuDeathTest, ReportsAMissingBarrierInWhateverOrder) {
  constexpr int kThreadSanitizerFound = 66;
  for (const auto order : {emulated::Order::kAscending, emulated::Order::kDescending}) {
    emulated::set_order(order);
    DeviceArray<int> x(std::vector<int>(64, 1));
    DeviceArray<int> y(64);
    for (const auto kernel : {reverse_block_without_barrier, pass_values_on_by_shuffles}) {
      EXPECT_EXIT((run(kernel, 64, x.data(), y.data()), std::exit(0)),
                  testing::ExitedWithCode(kThreadSanitizerFound), "data race");
    }
    EXPECT_EXIT((run(reverse_block, 64, x.data(), y.data()), std::exit(0)),
                testing::ExitedWithCode(0), "");
  }
  emulated::set_order(emulated::Order::kAscending);
}
#endif

#ifdef __SANITIZE_ADDRESS__
TEST(EmulatedGpuDeathTest, ReportsAReadBehindAnAllocation) {
  DeviceArray<int> x(std::vector<int>(64, 1));
  DeviceArray<int> y(64);
  EXPECT_DEATH(run(copy_one_more, 64, x.data(), y.data()), "use-after-poison");
  EXPECT_DEATH(run(copy_one_more, 32, x.data() + 32, y.data()), "use-after-poison");
}
#else
TEST(EmulatedGpu, SharedMemoryHoldsNothingOfAnotherBlock) {
  DeviceArray<int> y(2);
  ASSERT_EQ(cuda::launch(let_the_first_block_write, 2, 32, the_stream(), y.data()), cudaSuccess);
  EXPECT_EQ(y.values()[0], 7);
  EXPECT_NE(y.values()[1], 7);
}
#endif

TEST(EmulatedGpuDeathTest, ReportsLanesAtDifferentCollectives) {
  DeviceArray<int> y(32);
  EXPECT_DEATH(run(use_two_collectives, 32, y.data()), "different collectives");
}

TEST(EmulatedGpuDeathTest, HostCodeCannotTouchDeviceMemory) {
  DeviceArray<int> y(32);
  EXPECT_DEATH(y.data()[0] = 1, "");
}

TEST(EmulatedGpu, DoesNothingBeforeSomebodyWaits) {
  DeviceArray<int> y(std::vector<int>{7});
  int seen = 0;
  ASSERT_EQ(cudaMemcpyAsync(&seen, y.data(), sizeof seen, cudaMemcpyDeviceToHost, the_stream()),
            cudaSuccess);
  EXPECT_EQ(seen, 0);
  ASSERT_EQ(cudaStreamSynchronize(the_stream()), cudaSuccess);
  EXPECT_EQ(seen, 7);
}

TEST(EmulatedGpu, RefusesWhatACaptureCannotHold) {
  ASSERT_EQ(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  int* memory = nullptr;
  EXPECT_NE(cudaMalloc(&memory, 4), cudaSuccess);
  EXPECT_NE(cudaStreamSynchronize(the_stream()), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(the_stream(), &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace k3
