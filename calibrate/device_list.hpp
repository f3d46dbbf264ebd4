// What a calibration of a GPU times, the most wanted first, so that a budget leaves out the least wanted:
//
//    rank -1  a copy and a product, without which there is no preset: on the whole device whatever the budget
//          0  the steps of the models that are asked about, at their micro-batches, and copies, launches and optimizers
//          1  operations that move values, 4 Ki to 256 Mi of them
//          2  products of layers d -> d, d -> 3d, d -> 4d, 4d -> d at 64 to 16384 rows
//          3  attention, convolutions
//          4  products one row short of, at, and one row beyond what fills the SMs once and twice with tiles of 128
//     in bf16 and fp32 first, all of that in fp16 and tf32 thereafter; what only moves values has no tf32, nor have
//     optimizers, which in 16 bits also write the rounded copy that layers read; copies and launches are measured in
//     fp32
//
// Each on one of K virtual devices for every K asked for, while 1, 2, 4, ... of the K do the same at once: alone and
// all of them first, the numbers between after the whole rank. Within a rank by K, so that a GPU is cut anew seldom.
//
// Largest product: 4096^3 multiply-adds / K, so that ten readings stay short.
//
// Tests: tests/calibrate/device_loop_test.cpp
#pragma once

#include <string>
#include <vector>

#include "core/cluster/measured_device.hpp"
#include "core/model/graph.hpp"
#include "core/model/program.hpp"
#include "core/plan/optimizer.hpp"

namespace pipewright {

constexpr int kEssential = -1;  // rank

enum class DeviceWork {
  Step,          // a pass of the only step of `program`, for `samples`
  Update,        // of `optimizer`, over size.rows parameters
  Copy,          // of size.rows values by the SMs, to another place on the device
  CopyOnDevice,  // likewise by the driver
  CopyToHost,    // to and from pinned memory
  CopyToDevice,
  Launch,  // of an empty kernel
};

struct DeviceMeasurement {
  DeviceWork work = DeviceWork::Step;
  std::string operation;  // of the series
  MeasuredPass pass = MeasuredPass::Forward;
  Precision precision = Precision::Fp32;
  OperationSize size;
  SharedProgram program;
  std::int64_t samples = 1;
  Optimizer optimizer = Optimizer::Sgd;
  int virtual_devices = 1, busy = 1;
  int rank = 0;
};

struct AskedModel {
  const Model* model = nullptr;
  std::vector<std::int64_t> micro_batches;
};

struct DeviceSplit {
  int virtual_devices = 1, sms = 1;  // of each
};

// `splits`: by virtual_devices, ascending. No measurement stands there twice.
std::vector<DeviceMeasurement> device_measurements(const std::vector<AskedModel>& models,
                                                   const std::vector<DeviceSplit>& splits);

// "linear forward bf16, 1 x 512 x 384 x 128; 1 of 4 virtual devices, 2 busy"
std::string text(const DeviceMeasurement& measurement);

}  // namespace pipewright
