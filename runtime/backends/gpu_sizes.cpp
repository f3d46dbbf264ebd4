// The GPU's arithmetic without a GPU: how large its blocks are. Workspaces follow from shapes alone.
#include "core/check.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/backends/grid_backend.hpp"

// Computes nothing. Where the kernels are, so that grid_backend.hpp finds them.
namespace pipewright::kernels::grid_kernels {

struct NoGrid {
  bool tf32 = false;
  template <class Body>
  void values(const char*, I, const Body&) const {
    PP_CHECK(false);
  }
  template <class Body>
  void rows(const char*, I, const Body&) const {
    PP_CHECK(false);
  }
};

}  // namespace pipewright::kernels::grid_kernels

namespace pipewright::runtime {

namespace {

template <class S>
class GpuSizes final : public backends::GridBackend<grid_kernels::NoGrid, S> {
 public:
  explicit GpuSizes(Precision precision) : precision_(precision) {}
  Precision precision() const override { return precision_; }
  std::string name() const override { return "cuda (sizes)"; }
  std::string_view kind() const override { return "cuda"; }
  Bytes alignment() const override { return kGpuAlignment; }
  void copy(void*, const void*, Bytes) override { PP_CHECK(false); }
  void zero(void*, Bytes) override { PP_CHECK(false); }

 protected:
  const grid_kernels::NoGrid& queue() const override { return none_; }

 private:
  Precision precision_;
  grid_kernels::NoGrid none_;
};

}  // namespace

std::unique_ptr<Backend> gpu_sizes(Precision precision) {
  return backends::stored_as<GpuSizes>(precision, precision);
}

}  // namespace pipewright::runtime
