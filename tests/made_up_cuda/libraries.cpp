// NVIDIA's libraries are not found, wherever they lie: they would want a GPU of their own. Others are opened as ever.
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include <dlfcn.h>

extern "C" void* dlopen(const char* file, int mode) noexcept {
  using Open = void* (*)(const char*, int);
  static const Open system = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  for (const char* const name : {"libcublas", "libcudnn", "libcuda.so", "libnccl.so"})
    if (file != nullptr && std::strstr(file, name) != nullptr) file = "/nonexistent/of-the-made-up-CUDA";
  return system(file, mode);
}
