#include "kernels/gpu_libraries.hpp"

#include <cstdlib>

#include <cublasLt.h>
#include <dlfcn.h>
#include <link.h>

namespace pipewright {
namespace {

std::vector<std::string> places(const std::string& file) {
  std::vector<std::string> out = {file};
  if (const char* const home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0')
    out.push_back(std::string(home) + "/lib64/" + file);
  out.push_back("/usr/local/cuda/lib64/" + file);
  return out;
}

// The file that the loader took: a bare name says nothing of it.
std::string path_of(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || *map->l_name == '\0') return otherwise;
  return map->l_name;
}

OpenLibrary opened(const char* name, const char* use, const std::string& file) {
  OpenLibrary library;
  library.told.name = name, library.told.use = use;
  for (const std::string& place : places(file)) {
    library.told.looked.push_back(place);
    library.handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle == nullptr) continue;
    library.told.path = path_of(library.handle, place);
    break;
  }
  return library;
}

std::string dotted(std::size_t major, std::size_t minor, std::size_t patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace

void* symbol(const OpenLibrary& library, const char* name) {
  void* const found = library.handle == nullptr ? nullptr : dlsym(library.handle, name);
  if (found == nullptr)
    throw GpuError(library.told.name + (library.handle == nullptr ? " was not found" : " has no " + std::string(name)));
  return found;
}

const OpenLibrary& cublas_lt_library() {
  static const OpenLibrary library = [] {
    OpenLibrary out =
        opened("cuBLASLt", "matrix products of linear layers (run.kernels: library)", "libcublasLt.so.13");
    if (out.handle == nullptr) return out;
    const std::size_t version = symbol_of<decltype(&cublasLtGetVersion)>(out, "cublasLtGetVersion")();  // 130100
    out.told.version = dotted(version / 10000, version / 100 % 100, version % 100);
    return out;
  }();
  return library;
}

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

const OpenLibrary& nccl_library() {
  static const OpenLibrary library = [] {
    OpenLibrary out = opened("NCCL", "nothing yet: there is no transport nccl", "libnccl.so.2");
    if (out.handle == nullptr) return out;
    int version = 0;  // 22809: 2.28.9
    if (symbol_of<int (*)(int*)>(out, "ncclGetVersion")(&version) != 0) return out;
    const auto number = static_cast<std::size_t>(version);
    out.told.version = dotted(number / 10000, number / 100 % 100, number % 100);
    return out;
  }();
  return library;
}

}  // namespace pipewright
