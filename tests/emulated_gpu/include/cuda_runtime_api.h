// As cuda_runtime.h, for files that launch nothing.
#pragma once

#include <cuda_runtime.h>
