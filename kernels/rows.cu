#include "kernels/device_grid.cuh"
#include "kernels/rows.hpp"

namespace pipewright::kernels::grid_kernels {

PIPEWRIGHT_STORED_AS_ANY(layer_norm);
PIPEWRIGHT_STORED_AS_ANY(layer_norm_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(layer_norm_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(rms_norm);
PIPEWRIGHT_STORED_AS_ANY(rms_norm_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(rms_norm_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(softmax);
PIPEWRIGHT_STORED_AS_ANY(softmax_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(cross_entropy);
PIPEWRIGHT_STORED_AS_ANY(global_average_pool);
PIPEWRIGHT_STORED_AS_ANY(bias_gradient);

}  // namespace pipewright::kernels::grid_kernels
