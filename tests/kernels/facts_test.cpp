// What is told of GPUs holds together, whatever this machine has.
#include <doctest/doctest.h>

#include "kernels/gpu_api.hpp"

namespace pipewright::tests {
namespace {

TEST_CASE("A machine has GPUs, or the reason why it has none") {
  const GpuSystem system = gpu_system();
  CHECK(system.missing.empty() == !system.gpus.empty());
  CHECK(gpu_count() == static_cast<int>(system.gpus.size()));
  CHECK_FALSE(gpu_status().empty());
  CHECK(system.toolkit.empty() == system.architectures.empty());
}

TEST_CASE("A library was found at a place, in none of those it was looked for in, or is left out of the build") {
  for (const GpuLibrary& library : gpu_system().libraries) {
    CAPTURE(library.name);
    CHECK(library.looked.empty() == !library.left_out.empty());
    CHECK(library.path.empty() == library.version.empty());
  }
}

TEST_CASE("Without a GPU every request is refused as an error that says why") {
  if (gpu_count() > 0) return;
  CHECK_THROWS_AS(GpuMemory(0, Bytes{64}), GpuError);
  CHECK_THROWS_AS(GpuEvent(0), GpuError);
  CHECK_THROWS_AS(VirtualDevices(0, 2, 1), GpuError);
  try {
    GpuMemory(0, Bytes{64});
  } catch (const GpuError& error) {
    CHECK(std::string(error.what()).size() > 20);
  }
}

}  // namespace
}  // namespace pipewright::tests
