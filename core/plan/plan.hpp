// The answer to "who computes what": a scenario's plan with every number settled.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/ids.hpp"
#include "core/plan/schedule.hpp"
#include "core/question/scenario.hpp"
#include "core/units.hpp"

namespace pipewright::core {

struct LayerRange {
  LayerId begin = 0, end = 0;  // [begin, end), never empty
  int size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

struct Plan : RuntimePolicy {
  std::string schedule;      // a name from sim/schedules/table
  ScheduleFacts facts;       // of that schedule
  int stages = 1;            // K
  int virtual_stages = 1;    // chunks per stage, v
  int data_parallel = 1;     // D, copies of the pipeline that have samples of their own
  int context_parallel = 1;  // c, copies that divide the tokens of the same samples
  int shard = 0;             // of the D: how many divide states among them, with all their c; 0: all of them
  int tensor_parallel = 1;   // t, devices of a worker
  bool sequence_parallel = false;
  int expert_parallel = 1, expert_tensor_parallel = 0;  // e, x (0: t): devices that hold the experts between them
  Indexed<StageId, int> replicas;                       // r_k
  std::int64_t micro_batches = 1;                       // M, per copy, counted over all replicas
  std::int64_t micro_batch_size = 1;                    // samples
  std::int64_t last_micro_batch_size = 1;               // samples of micro-batch M - 1; differs only when ragged
  std::int64_t global_batch_size = 1;                   // samples per optimizer step, over all copies
  // What each chunk is cut into: gathered and reduced one by one, and virtual stages of their own.  [FSDP23]
  int units = 1;
  std::optional<Resharding> resharding;        // of weights that are sharded; none: they are whole
  bool reduce_each = false;                    // gradients are reduced after every micro-batch; else after the last
  std::vector<bool> offloaded;                 // ScheduleShape::offloaded
  Indexed<VirtualStageId, LayerRange> layers;  // 0 .. K*v*units-1, in order, covering the model
  Indexed<StageId, Recompute> recompute;
  std::vector<LayerId> rebuilt;  // of the stages with Recompute::Layers, ascending: what repeats its forward
  bool scatter_gather = false;
  // Per worker: its lead device. A worker has the t consecutive devices that begin there; they compute alike, so the
  // lead stands for all of them in routes, all-reduces and memory.
  Indexed<WorkerId, DeviceId> device;
  ChunkOrder chunk_order = ChunkOrder::Loop;
  std::shared_ptr<const GivenSchedule> given;  // of the schedule "file"
  std::string cut;                             // how the layers were cut, for the report; "": as asked for, or balanced

  // Whether the layer, one of stage k, keeps its input only and repeats its forward right before its backward.
  bool rebuilds(StageId k, LayerId layer, const Model& model) const;
  // All copies of the pipeline: copy d c + i has the i-th part of the tokens of the d-th share of the batch.
  int copies() const { return data_parallel * context_parallel; }
  Seating seating() const {
    return {stages,        virtual_stages, chunk_order,
            micro_batches, copies(),       replicas,
            units,         directions(),   given ? dealing_of(*given) : nullptr};
  }
  // ScheduleShape::slices, and how many passes a copy runs through each chunk.
  std::int64_t slices_of_each() const { return slices ? slices->value : 1; }
  std::int64_t passes() const { return micro_batches * slices_of_each(); }
  // ScheduleShape::update_every.
  int micro_batches_per_update() const {
    if (!facts.states_round) return 1;
    return static_cast<int>(std::min<std::int64_t>(update_every ? update_every->value : stages, 1 << 30));
  }
  // ScheduleShape::pipelines.
  int directions() const {
    if (given) return pipelines_of(*given);
    return facts.states_pipelines && pipelines ? static_cast<int>(std::min<std::int64_t>(pipelines->value, stages)) : 2;
  }
  int chunks() const { return stages * virtual_stages * units; }  // number of virtual stages
  std::vector<LayerRange> uncut() const;                          // the layers of each chunk, its units joined
  StageId stage_of(VirtualStageId v) const { return seating().stage_of(v); }
  int positions() const { return seating().positions(); }  // workers in one copy, sum of r_k
  int workers() const { return positions() * copies(); }
  int devices() const { return workers() * tensor_parallel; }
  // Micro-batches whose tokens an expert gets at once; less than one where a micro-batch is divided further than experts are.
  double micro_batches_at_expert() const {
    return static_cast<double>(split().expert_devices()) / (tensor_parallel * context_parallel);
  }
  TensorParallel split() const { return {tensor_parallel, sequence_parallel, expert_parallel, expert_tensor_parallel}; }
  // Devices of a stage that hold the same experts.
  int expert_copies() const {
    const std::int64_t all = std::int64_t{copies()} * tensor_parallel;
    return static_cast<int>(std::max<std::int64_t>(1, all / split().expert_devices()));
  }
  // Workers that divide the states of a chunk of stage k among them, where training.zero says so.
  int sharded_over(StageId k) const {
    const VirtualStageId v = seating().chunk_of(k, 0);
    return shard == 0 ? seating().members(v) : shard * context_parallel * seating().holders(v);
  }
  std::int64_t samples(MicroBatchId m) const {
    return m + 1 == micro_batches ? last_micro_batch_size : micro_batch_size;
  }
};

// A key of the plan that some schedules alone have.
struct ScheduleKey {
  std::string_view name;
  std::optional<Placed<std::int64_t>> RuntimePolicy::*asked;
  bool ScheduleFacts::*stated;
};
inline constexpr std::array kScheduleKeys = {
    ScheduleKey{"most_in_flight", &RuntimePolicy::most_in_flight, &ScheduleFacts::limits_in_flight},
    ScheduleKey{"micro_batch_group", &RuntimePolicy::micro_batch_group, &ScheduleFacts::states_group},
    ScheduleKey{"slices", &RuntimePolicy::slices, &ScheduleFacts::states_slices},
    ScheduleKey{"pipelines", &RuntimePolicy::pipelines, &ScheduleFacts::states_pipelines},
    ScheduleKey{"forwards_at_once", &RuntimePolicy::forwards_at_once, &ScheduleFacts::states_forwards},
    ScheduleKey{"update_every", &RuntimePolicy::update_every, &ScheduleFacts::states_round},
};

// No plan satisfies the request: why, and what would help. Printed as "infeasible: ...", exit status 1.
struct Infeasible {
  std::string reason;                      // one line
  std::vector<std::string> details;        // itemised shortfall, one line per stage
  std::vector<std::string> remedies;       // "with recompute: full needs 9.8 GiB, 120.8 samples/s: --set ..."
  bool known = true;                       // false: of a search that could not simulate all; there may be a plan
  std::vector<std::string> warnings = {};  // what to be careful about, as of an answer
};

// M and the micro-batch size from two of (global batch, micro-batch size, micro-batches) and the number of copies.
// Throws InputError: the valid numbers of micro-batches are listed when the batch does not divide and `ragged` is off.
// Ragged: the last micro-batch holds what is left. Given the size b, M = ceil(samples of a copy / b); given M,
// b = ceil(samples of a copy / M), and an M that would leave micro-batches empty is refused.
struct BatchSplit {
  std::int64_t global_batch_size, micro_batch_size, micro_batches, last_micro_batch_size;
};
// More micro-batches than any run has; keeps a slip of the keyboard from filling the memory.
constexpr std::int64_t kMostMicroBatches = std::int64_t{1} << 24;
BatchSplit batch_split(const Training& training, std::int64_t data_parallel);

// Class of the devices that stage k lies on, of a plan that `mixed_classes` has nothing against.
int class_of_stage(const Plan& plan, const Cluster& cluster, StageId k);

int workers_on_class(const Plan& plan, const Cluster& cluster, int device_class);

// "4 x v100", and of several classes "2 x h100-sxm-80g + 4 x a100-80g": what the workers lie on.
std::string devices_in_words(const Plan& plan, const Cluster& cluster);

// Copies and replicas of a stage, and the members of a tensor-parallel group, share its work evenly, so that one class
// of devices has to hold them. "", or one sentence that names a stage on several.
std::string mixed_classes(const Plan& plan, const Cluster& cluster);

// Independent check of a finished plan: layers cover the model in order, no empty stage, the devices
// of the workers distinct and existing, those of a stage of one class.
// Throws InputError naming what is wrong.
void validate(const Plan& plan, const Model& model, const Cluster& cluster);

// How many devices of which node a plan takes, where any. 12 devices in a row on nodes of 8: {0: 8, 1: 4}.
// tests/planner/launch_test.cpp "as many ranks on every node"
std::map<int, int> devices_by_node(const Plan& plan, const Cluster& cluster);

// Whoever leaves the plan open leaves its micro-batches open, too, where nothing is said of them:
//     training: {global_batch_size: 64}, plan: auto     as if it said micro_batch_size: auto
// A field that is opened here has no place in any file: Place{}. Calling it again after a change starts over.
//                                                          tests/io/read_scenario_test.cpp "opens the micro-batches"
void open_micro_batches(Training& training, bool plan_open);

}  // namespace pipewright::core
