// What a calibration of a GPU times, the most wanted first, so that a budget leaves out the least wanted:
//
//    rank -1  a copy and a product, without which there is no preset: on the whole device whatever the budget
//          0  the steps of the models that are asked about, at their micro-batches, and copies, launches and optimizers
//          1  operations that move values, dropout among them, 4 Ki to 256 Mi of them
//          2  products of layers d -> d, d -> 3d, d -> 4d, 4d -> d at 64 to 16384 rows
//          3  attention, convolutions
//          4  products one row short of, at, and one row beyond what fills the SMs once and twice with tiles of 128
//          5  what moves values beyond 1 GiB of fp32: each takes long, and few models have them
//         20  copies of pageable memory; what it takes to launch, by four ways
//         21  pairs: a product or what moves values beside the other, or beside a copy that the driver makes, each
//         slowing the
//             other, and copies both ways at once
//         22  all-reduces around the ring of all virtual devices, 4 KiB to 256 MiB
//         23  between GPUs, where there are several: copies of every pair, by the direct link and through the host;
//             NCCL's all-reduce, all-gather and send among 2, 4, ... and all of them; 4 KiB to 256 MiB
//         24  pairs again, while 1, 2, 4, ... but not all of the other groups are busy
//     in bf16 and fp32 first, all of that in fp16 and tf32 thereafter; what only moves values has no tf32, nor have
//     optimizers, which in 16 bits also write the rounded copy that layers read; copies and launches are measured in
//     fp32. Ranks from 20 on, which price nothing, come after all of that, pairs in bf16 and fp32.
//
// Each on one of K virtual devices for every K asked for, while 1, 2, 4, ... of the K do the same at once: alone and
// all of them first, the numbers between after the whole rank. Within a rank by K, so that a GPU is cut anew seldom.
// Copies beyond 1 GiB come after all else of their rank.
//
// Pairs are measured with one of K groups busy with the one, all others with the other; on the whole device with two
// streams. What the host takes part in (rank 20) is done by one group alone, copies of pageable memory on the whole
// device only: they pass no SM.
//
// Largest product: 4096^3 multiply-adds / K, so that ten readings stay short.
//
// Tests: tests/calibrate/device_list_test.cpp
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/measured_device.hpp"
#include "core/model/graph.hpp"
#include "core/model/program.hpp"
#include "core/question/optimizer.hpp"

namespace pipewright::calibrate {

constexpr int kEssential = -1, kByTheHost = 20, kPairs = 21, kRings = 22, kBetweenGpus = 23, kFewerPairs = 24;  // ranks

enum class DeviceWork {
  Step,          // a pass of the only step of `program`, for `samples`
  Dropout,       // likewise, of a dropout, which no run has: of size.rows * size.columns values
  Update,        // of `optimizer`, over size.rows parameters
  Copy,          // of size.rows values by the SMs, to another place on the device
  CopyOnDevice,  // likewise by the driver
  CopyToHost,    // to and from pinned memory
  CopyToDevice,
  CopyPageableToHost,  // to and from memory that is not pinned: the host takes part
  CopyPageableToDevice,
  Launch,           // of an empty kernel, which waits in its stream for the one before
  LaunchOneByOne,   // of size.rows empty kernels, by the host, whatever the device waits for
  LaunchByGraph,    // likewise, all of them at once
  LaunchAndRecord,  // one by one, an event after each
  LaunchAcross,     // so often there and back between two streams, each waiting for the other's event
  RingAllReduce,    // of size.values bytes in each of `members` groups of one GPU
  PeerCopy,         // of size.values bytes between two GPUs, by their direct link
  PeerCopyByHost,   // likewise, through the host's memory
  NcclAllReduce,    // of size.values bytes in each of `members` GPUs
  NcclAllGather,    // likewise, of as many that each has afterwards: so many parts of `all_gather_part`
  NcclSend,         // of size.values bytes from the first to the second
};
// Bytes of one of so many parts of an all-gather of so many: a multiple of 16, by which NCCL's kernels move them.
std::int64_t all_gather_part(std::int64_t bytes, int members);
// What a backend computes, in a precision.
bool computed(DeviceWork work);
// What several devices do together: it goes to `collectives`.
bool collective(DeviceWork work);
// What the host takes part in while it lasts: no gate may hold the stream meanwhile.
bool by_the_host(DeviceWork work);
bool by_the_host(std::string_view operation);  // of a series
// Copies that the driver makes, by an engine or as it likes.
bool by_driver(DeviceWork work);

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
  bool large = false;                 // beyond 1 GiB of fp32: after all else of its rank, and not warm
  int members = 0, from = 0, to = 0;  // of a collective: how many; GPUs of a copy
  // What the other busy groups do meanwhile, or a second stream where there is one group; null: the same, `busy` of
  // them.
  std::shared_ptr<const DeviceMeasurement> beside = nullptr;
};

struct AskedModel {
  const Model* model = nullptr;
  std::vector<std::int64_t> micro_batches;
};

struct DeviceSplit {
  int virtual_devices = 1, sms = 1;  // of each
};

// `splits`: by virtual_devices, ascending. No measurement stands there twice. `gpus`: that copies are made between; of
// one, those of two are listed, so that the device can refuse them.
std::vector<DeviceMeasurement> device_measurements(const std::vector<AskedModel>& models,
                                                   const std::vector<DeviceSplit>& splits, int gpus = 1);

// Without what computes in another precision; copies, launches and what several GPUs do have none. No precisions: all.
std::vector<DeviceMeasurement> of_precisions(std::vector<DeviceMeasurement> list,
                                             const std::vector<Precision>& precisions);

// "linear", "linear beside copy to host", "copy to host beside linear bf16"
std::string label(const DeviceMeasurement& measurement);
// "linear forward bf16, 1 x 512 x 384 x 128; 1 of 4 virtual devices, 2 busy"
std::string text(const DeviceMeasurement& measurement);

}  // namespace pipewright::calibrate
