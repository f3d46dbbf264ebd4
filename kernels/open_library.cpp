#include "kernels/open_library.hpp"

#include <cstdlib>
#include <vector>

#include <dlfcn.h>
#include <link.h>

namespace pipewright::kernels {
namespace {

std::vector<std::string> places(const std::string& file) {
  std::vector<std::string> out = {file};
  const std::string usual = "/usr/local/cuda/lib64/" + file;
  if (const char* const home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0')
    if (const std::string there = std::string(home) + "/lib64/" + file; there != usual) out.push_back(there);
  out.push_back(usual);
  return out;
}

// The file that the loader took: a bare name says nothing of it.
std::string path_of(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || *map->l_name == '\0') return otherwise;
  return map->l_name;
}

}  // namespace

OpenLibrary opened(const char* name, const char* use, const std::string& file, const std::string& instead) {
  OpenLibrary library;
  library.told.name = name, library.told.use = use;
  for (const std::string& place : instead.empty() ? places(file) : std::vector<std::string>{instead}) {
    library.told.looked.push_back(place);
    library.handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle == nullptr) {
      if (const char* const why = dlerror(); why != nullptr) library.why = why;
      continue;
    }
    library.told.path = path_of(library.handle, place);
    break;
  }
  return library;
}

void* symbol(const OpenLibrary& library, const char* name) {
  void* const found = library.handle == nullptr ? nullptr : dlsym(library.handle, name);
  if (found == nullptr)
    throw GpuError(library.told.name + (library.handle == nullptr ? " was not found" : " has no " + std::string(name)));
  return found;
}

std::string dotted(std::size_t major, std::size_t minor, std::size_t patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace pipewright::kernels
