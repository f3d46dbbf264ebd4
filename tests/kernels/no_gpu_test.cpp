// In place of gpu_test.cpp in a build without kernels: skipped, with the reason.
#include <cstdio>

#include "kernels/gpu_api.hpp"

int main() {
  std::printf("skipped: %s\n", pipewright::kernels::gpu_status().c_str());
  return 77;
}
