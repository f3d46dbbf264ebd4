// What the groups of one GPU do together, and what several GPUs do: the collectives of calibrate/gpu_under_test.cpp.
//
// A reading of the ring: all streams are held by a gate until everything lies in them, the clock is probed and the L2
// flushed; it begins when the first stream is there, and ends when every group has done its last step. Copies between
// two GPUs lie between two events of a stream of the one that sends, those by the direct link behind a gate as well
// (others may keep the host waiting); by NCCL: nccl_members.hpp.
//
// Nothing of it has run on a GPU.
#pragma once

#include <memory>

#include "calibrate/between_gpus.hpp"
#include "kernels/gpu_api.hpp"

namespace pipewright::calibrate {

inline constexpr double kGpuReadingNs = 100e3;  // 200 times the resolution of events
inline constexpr Time kProbe{20'000};           // of the clock, in front of a reading

std::unique_ptr<Stopwatch> ring_watch(const DeviceMeasurement& measurement,
                                      const std::shared_ptr<VirtualDevices>& devices, double clock_ghz);
NumericCheck ring_check(const DeviceMeasurement& measurement, const std::shared_ptr<VirtualDevices>& devices);

// From GPU m.from to m.to: by the direct link, or as without one.
std::unique_ptr<Stopwatch> peer_watch(const DeviceMeasurement& m);
NumericCheck peer_check(const DeviceMeasurement& m);

NcclAmong gpu_nccl();

}  // namespace pipewright::calibrate
