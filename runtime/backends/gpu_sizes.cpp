// The GPU's arithmetic by name only: how large its blocks are. Workspaces follow from shapes alone, so every kernel is
// a name that computes nothing.
#include "core/check.hpp"
#include "runtime/backends/gpu.hpp"
#include "runtime/backends/grid_backend.hpp"

namespace pipewright {

// What grid_backend.hpp calls kernels with; argument-dependent lookup finds the names below.
namespace names_only {

struct Queue {};

#define PIPEWRIGHT_NAMES_ONLY(kernel)          \
  template <class... Given>                    \
  void kernel(const Queue&, const Given&...) { \
    PP_CHECK(false);                           \
  }
PIPEWRIGHT_NAMES_ONLY(activation)
PIPEWRIGHT_NAMES_ONLY(activation_input_gradient)
PIPEWRIGHT_NAMES_ONLY(add)
PIPEWRIGHT_NAMES_ONLY(attention)
PIPEWRIGHT_NAMES_ONLY(attention_gradient)
PIPEWRIGHT_NAMES_ONLY(average_pool)
PIPEWRIGHT_NAMES_ONLY(average_pool_input_gradient)
PIPEWRIGHT_NAMES_ONLY(conv2d)
PIPEWRIGHT_NAMES_ONLY(conv2d_input_gradient)
PIPEWRIGHT_NAMES_ONLY(conv2d_weight_gradient)
PIPEWRIGHT_NAMES_ONLY(convert)
PIPEWRIGHT_NAMES_ONLY(copy_rows)
PIPEWRIGHT_NAMES_ONLY(copy_values)
PIPEWRIGHT_NAMES_ONLY(cross_entropy)
PIPEWRIGHT_NAMES_ONLY(dropout)
PIPEWRIGHT_NAMES_ONLY(embedding)
PIPEWRIGHT_NAMES_ONLY(embedding_weight_gradient)
PIPEWRIGHT_NAMES_ONLY(fill)
PIPEWRIGHT_NAMES_ONLY(flash_attention)
PIPEWRIGHT_NAMES_ONLY(flash_attention_gradient)
PIPEWRIGHT_NAMES_ONLY(gated)
PIPEWRIGHT_NAMES_ONLY(gated_input_gradient)
PIPEWRIGHT_NAMES_ONLY(global_average_pool)
PIPEWRIGHT_NAMES_ONLY(global_average_pool_input_gradient)
PIPEWRIGHT_NAMES_ONLY(layer_norm)
PIPEWRIGHT_NAMES_ONLY(layer_norm_input_gradient)
PIPEWRIGHT_NAMES_ONLY(layer_norm_weight_gradient)
PIPEWRIGHT_NAMES_ONLY(learned_table)
PIPEWRIGHT_NAMES_ONLY(learned_table_weight_gradient)
PIPEWRIGHT_NAMES_ONLY(linear)
PIPEWRIGHT_NAMES_ONLY(linear_input_gradient)
PIPEWRIGHT_NAMES_ONLY(linear_weight_gradient)
PIPEWRIGHT_NAMES_ONLY(max_pool)
PIPEWRIGHT_NAMES_ONLY(max_pool_input_gradient)
PIPEWRIGHT_NAMES_ONLY(multiply)
PIPEWRIGHT_NAMES_ONLY(rms_norm)
PIPEWRIGHT_NAMES_ONLY(rms_norm_input_gradient)
PIPEWRIGHT_NAMES_ONLY(rms_norm_weight_gradient)
PIPEWRIGHT_NAMES_ONLY(scale)
PIPEWRIGHT_NAMES_ONLY(softmax)
PIPEWRIGHT_NAMES_ONLY(softmax_input_gradient)
PIPEWRIGHT_NAMES_ONLY(transpose)
PIPEWRIGHT_NAMES_ONLY(update)
#undef PIPEWRIGHT_NAMES_ONLY

}  // namespace names_only

namespace {

template <class S>
class GpuSizes final : public backends::GridBackend<names_only::Queue, S> {
 public:
  explicit GpuSizes(Precision precision) : precision_(precision) {}
  Precision precision() const override { return precision_; }
  std::string name() const override { return "cuda (sizes)"; }
  std::string_view kind() const override { return "cuda"; }
  Bytes alignment() const override { return kGpuAlignment; }
  void copy(void*, const void*, Bytes) override { PP_CHECK(false); }
  void zero(void*, Bytes) override { PP_CHECK(false); }

 protected:
  const names_only::Queue& queue() const override {
    PP_CHECK(false);
    static const names_only::Queue none;
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
