// What one operator takes on one device in one pass, ns: FLOPs and bytes at the rates and shares that the device states, or what
// its kernels of that size take, where it has curves (core/cluster/kernel_curves.hpp). roofline.cpp has the formulas.
#pragma once

#include <string>
#include <vector>

#include "core/cluster/kernel_curves.hpp"
#include "core/cost/low_precision.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// Nanoseconds by which a product takes longer that adds so many values to a sum in fp32: part of the time of reading and
// writing them. 67.1 M values on an A100 of 2.039 TB/s: 132 us.
//                                                     tests/papers/measured_collectives_test.cpp "add to a sum in fp32"
double added_to_sum_ns(double values, double bandwidth);

class OperatorTimes {
 public:
  // Throws InputError where the device lacks what the formulas need.
  OperatorTimes(const Scenario& scenario, int device_class);

  // Of the op's part on the device of so many samples, launches included; 0 where it does nothing. `kernels`: that share it.
  double time(const Operator& op, PassKind pass, double samples, double flops, double bytes, int kernels = 1) const;

  // Casting what a product in fewer bits reads in that pass: its input, or the gradient of its output; `weights` of them
  // too, where they are cast for every use.
  struct Casts {
    double time = 0;
    int kernels = 0;
  };
  Casts casts(const Operator& op, PassKind pass, double samples, double weights) const;

  // Of the peak, or of the memory's bandwidth, for so many FLOPs or bytes.
  double share(OperatorKind kind, double work) const;
  // Bytes per second of kernels that only move that many.
  Bandwidth moved_at(double bytes) const { return {bandwidth_ * share(OperatorKind::Memory, bytes)}; }
  FlopRate flop_rate() const { return flop_rate_; }  // of layers without operators
  Bandwidth byte_rate() const { return byte_rate_; }

  double weight() const { return weight_; }      // bytes of a value
  double gradient() const { return gradient_; }  // likewise
  const TensorParallel& split() const { return split_; }
  const LowPrecisionRule* low() const { return low_; }
  // "products: 71 % of the peak; ...": what is stated of each kind.
  std::string efficiencies() const;

 private:
  void read_rates();
  void read_low_precision();
  void choose_kernel(const Efficiency& attention);
  [[noreturn]] void refuse(const std::string& message) const;
  bool in_fewer_bits(const Operator& op) const;
  bool divided_rows(const Operator& op) const { return !op.divided && split_.sequence_parallel && !op.gathered; }
  double product_time(const Operator& op, PassKind pass, double samples) const;
  double attention_time(const Operator& op, PassKind pass, double samples) const;

  const Scenario& scenario_;
  const Device& device_;
  TensorParallel split_;
  double weight_, gradient_;
  double peak_ = 0, bandwidth_ = 0;
  FlopRate flop_rate_;
  Bandwidth byte_rate_;
  DeviceRates rates_, low_rates_;
  const LowPrecisionRule* low_ = nullptr;
  const ProductCurve* low_tiles_ = nullptr;                // as tiles_, of products in fewer bits
  const ProductCurve* tiles_ = nullptr;                    // nullptr: products take their share of the peak
  const ProductCurve* convolutions_ = nullptr;             // likewise
  const std::vector<AttentionKernel>* kernels_ = nullptr;  // likewise
  AttentionKernelName kernel_ = AttentionKernelName::Fa2;
};

const char* precision_key(Precision precision);  // "bf16"

}  // namespace pipewright::core
