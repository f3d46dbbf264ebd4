// Inside kernels/ only: the libraries whose headers come with CUDA, which give the types of their functions. NCCL's
// need not be there (nccl.hpp).
#pragma once

#include "kernels/open_library.hpp"

namespace pipewright {

// Opened at the first call, once.
const OpenLibrary& cublas_lt_library();
const OpenLibrary& cudnn_library();

}  // namespace pipewright
