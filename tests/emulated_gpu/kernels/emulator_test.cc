// What the emulated GPU notices, which is what tests on it are worth.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
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
