#include "kernels/device_grid.cuh"
#include "kernels/dropout.hpp"
#include "kernels/optimizers.hpp"
#include "kernels/tables.hpp"
#include "kernels/values.hpp"
#include "kernels/windows.hpp"

namespace pipewright::kernels::grid_kernels {

PIPEWRIGHT_STORED_AS_ANY(fill);
PIPEWRIGHT_STORED_AS_ANY(normal);
PIPEWRIGHT_STORED_AS_ANY(copy_values);
PIPEWRIGHT_STORED_AS_ANY(sum_of_terms);
PIPEWRIGHT_STORED_AS_ANY(scale);
PIPEWRIGHT_STORED_AS_ANY(add);
PIPEWRIGHT_STORED_AS_ANY(multiply);
PIPEWRIGHT_STORED_AS_ANY(add_bias);
PIPEWRIGHT_STORED_AS_ANY(activation);
PIPEWRIGHT_STORED_AS_ANY(activation_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(gated);
PIPEWRIGHT_STORED_AS_ANY(gated_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(transpose);
PIPEWRIGHT_STORED_AS_ANY(copy_rows);
PIPEWRIGHT_STORED_AS_ANY(dropout);
PIPEWRIGHT_STORED_AS_ANY(embedding);
PIPEWRIGHT_STORED_AS_ANY(embedding_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(max_pool);
PIPEWRIGHT_STORED_AS_ANY(max_pool_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(average_pool);
PIPEWRIGHT_STORED_AS_ANY(average_pool_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(global_average_pool_input_gradient);

template void convert(const Queue&, I, const float*, float*);
template void convert(const Queue&, I, const float*, Bf16*);
template void convert(const Queue&, I, const float*, Fp16*);
template void convert(const Queue&, I, const Bf16*, float*);
template void convert(const Queue&, I, const Fp16*, float*);
template void update(const Queue&, const UpdateRule<float>&, const UpdatedTensor<float, float>*, I);
template void update(const Queue&, const UpdateRule<float>&, const UpdatedTensor<float, Bf16>*, I);
template void update(const Queue&, const UpdateRule<float>&, const UpdatedTensor<float, Fp16>*, I);

}  // namespace pipewright::kernels::grid_kernels
