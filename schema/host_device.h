// Marks the functions whose one definition both the host compiler and nvcc must use.
#pragma once

#ifdef __CUDACC__
#define K3_HOST_DEVICE __host__ __device__
#else
#define K3_HOST_DEVICE
#endif
