#include "kernels/gpu_libraries.hpp"

namespace pipewright {

const OpenLibrary& cudnn_library() {
  static const OpenLibrary library = [] {
    OpenLibrary out = opened("cuDNN", "nothing yet: convolutions are own kernels", "libcudnn.so.9");
    if (out.handle == nullptr) return out;
    const std::size_t version = symbol_of<std::size_t (*)()>(out, "cudnnGetVersion")();  // 91900: 9.19.0
    out.told.version = dotted(version / 10000, version / 100 % 100, version % 100);
    return out;
  }();
  return library;
}

}  // namespace pipewright
