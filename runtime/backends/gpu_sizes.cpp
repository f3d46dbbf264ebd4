// The GPU's arithmetic by name only: what its blocks are as large as. The kernels are the CPU's form of the same code,
// whose workspaces are the same.
#include "core/check.hpp"
#include "kernels/dropout.hpp"
#include "kernels/optimizers.hpp"
#include "kernels/rows.hpp"
#include "kernels/tables.hpp"
#include "kernels/tiles.hpp"
#include "kernels/values.hpp"
#include "kernels/windows.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/backends/grid_backend.hpp"

namespace pipewright {
namespace {

template <class S>
class GpuSizes final : public backends::GridBackend<grid_kernels::HostGrid, S> {
 public:
  explicit GpuSizes(Precision precision) : precision_(precision) {}
  Precision precision() const override { return precision_; }
  std::string name() const override { return "cuda (sizes)"; }
  std::string_view kind() const override { return "cuda"; }
  Bytes alignment() const override { return kGpuAlignment; }
  void copy(void*, const void*, Bytes) override { PP_CHECK(false); }
  void zero(void*, Bytes) override { PP_CHECK(false); }

 protected:
  const grid_kernels::HostGrid& queue() const override {
    PP_CHECK(false);
    static const grid_kernels::HostGrid none{1};
    return none;
  }

 private:
  Precision precision_;
};

}  // namespace

std::unique_ptr<Backend> gpu_sizes(Precision precision) {
  return backends::stored_as<GpuSizes>(precision, precision);
}

}  // namespace pipewright
