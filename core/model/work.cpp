#include "core/model/work.hpp"

namespace pipewright {

Amount& Amount::operator+=(const Amount& other) {
  values += other.values, fixed += other.fixed;
  sharded_values += other.sharded_values, sharded_fixed += other.sharded_fixed;
  gathered_values += other.gathered_values;
  return *this;
}

Amount& Amount::operator-=(const Amount& other) {
  return *this += -1.0 * other;
}

Amount operator*(double factor, Amount a) {
  a.values *= factor, a.fixed *= factor;
  a.sharded_values *= factor, a.sharded_fixed *= factor;
  a.gathered_values *= factor;
  return a;
}

double Amount::on_device(Bytes per_value, TensorParallel split) const {
  const auto each = static_cast<double>(per_value.value);
  const double whole = values * each + fixed, sharded = sharded_values * each + sharded_fixed;
  return (split.sequence_parallel ? whole / split.degree : whole) + sharded / split.degree + gathered_values * each;
}

double Work::forward_flops() const {
  double sum = 0;
  for (const Operator& op : operators)
    sum += op.forward_flops;
  return sum;
}

double Work::backward_flops() const {
  double sum = 0;
  for (const Operator& op : operators)
    sum += op.input_flops + op.weight_flops;
  return sum;
}

double Work::product_flops() const {
  double sum = 0;
  for (const Operator& op : operators)
    if (op.product) sum += op.forward_flops;
  return sum;
}

Amount Work::output() const {
  Amount sum;
  for (const Amount& output : outputs)
    sum += output;
  return sum;
}

std::int64_t parameters_on_device(const Work& work, int tensor_parallel) {
  return work.parameters - work.sharded_parameters + (work.sharded_parameters + tensor_parallel - 1) / tensor_parallel;
}

}  // namespace pipewright
