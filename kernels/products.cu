#include "kernels/attention.hpp"
#include "kernels/convolutions.hpp"
#include "kernels/device_grid.cuh"
#include "kernels/library_products.hpp"

namespace pipewright::kernels::grid_kernels {

bool Queue::multiply(const MatmulShape& shape, const void* a, const void* b, void* c, bool add) const {
  return library != nullptr && library->multiply(stream, shape, a, b, c, add);
}

PIPEWRIGHT_STORED_AS_ANY(linear);
PIPEWRIGHT_STORED_AS_ANY(linear_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(linear_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(conv2d);
PIPEWRIGHT_STORED_AS_ANY(conv2d_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(conv2d_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(attention);
PIPEWRIGHT_STORED_AS_ANY(attention_gradient);
PIPEWRIGHT_STORED_AS_ANY(flash_attention);
PIPEWRIGHT_STORED_AS_ANY(flash_attention_gradient);

}  // namespace pipewright::kernels::grid_kernels
