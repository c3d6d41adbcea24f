// A CUDA stream and a graph of the work that was put on it, owned.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "runtime/cuda_check.h"

namespace k3 {

class CudaStream {
 public:
  CudaStream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "to make a stream");
  }
  ~CudaStream() { (void)cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph() { clear(); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Becomes the work that `work` puts on `stream`, which does not run yet.
  void capture(cudaStream_t stream, const std::function<void()>& work) {
    clear();
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "to begin a capture");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      (void)cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "to end a capture");
    const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check_cuda(error, "to make a graph");
  }

  void launch(cudaStream_t stream) { check_cuda(cudaGraphLaunch(exec_, stream), "to run a graph"); }

 private:
  void clear() {
    if (exec_ != nullptr) (void)cudaGraphExecDestroy(exec_);
    exec_ = nullptr;
  }
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace k3
