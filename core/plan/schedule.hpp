// A schedule is data: for every worker, the order of its ops. Nothing else.
//
// When an op may start is derived by rule from the ops (dependencies are never stored), how long it takes comes from
// the cost model. The simulator prices this list and the executor runs it.
//
//   F(v,m)    forward of micro-batch m, virtual stage v     after F(v-1,m) arrived
//   R(v,m)    recompute that forward from its boundary      after F(v,m); may run before the gradient arrives
//   B(v,m)    gradient of the input                         after B(v+1,m) arrived and R(v,m); last stage: F(v,m)
//   W(v,m)    gradient of the weights                       after B(v,m)
//   BW(v,m)   B and W in one op                             as B
//
//   AllReduce(v,round,bucket)   on the gradients' stream    after every member's backwards of that round
//   Update(v,round)             optimizer step              after all buckets of that round
//   AllGather(v,m,pass)         on the weights' stream      when the compute op before the one that needs them starts
//                               (one ahead), or ends if it reads them itself; F, or the first of R, B and BW, of (v,m)
//                               starts after it
//   AllGather(v,round)          likewise, of weights that each of its holders updates in part (UpdatedParts): after
//                               Update(v,round) of all of them, and before Update(v,round + 1); or of the step before,
//                               with the step's start in the order of the forwards, in two parts: F of (v,m) starts after
//                               the first, and the compute op behind F after the second                  [ZeRO20]
//   Offload(v,m)                on the stream out           after F(v,m): its activations go to the memory of the partner
//                               or of the host. F starts after those of all forwards before it; to a host the latest
//                               may be on its way under it
//   Reload(v,m)                 on the stream in            after Offload(v,m), when the compute op before the first of
//                               R, B and BW of (v,m) starts, which starts after it; from a partner after those of all
//                               forwards before that op, too                                               [BPipe23]
//   Fetch(v,m,pass)             on the stream in            of weights that lie in the host's memory: this worker's shard
//                               comes, when the compute op two before the one that needs it starts; its AllGather starts
//                               after it                                              [ZeROInfinity21] section 6.2
//   Store(v,round)              on the stream out           likewise of gradients: the shard goes, after its AllReduce; the
//                               updates start after all of them, and the compute op behind the backward that completes
//                               gradients which the host adds to others                              [PyTorchFSDP26]
//   TableReduce(v,0,table)      on the tables' stream       with a flush, once a step and in all copies at the same time:
//                               gradients of a table that chunks of several workers hold (tied embeddings); v is the
//                               worker's own. After the last backward of each of these chunks and all their AllReduces;
//                               their updates start after it                                       [MegatronDDP26]
//   NormReduce(v,0)             on the norm's stream        with a flush, where gradients are clipped: of all workers of all
//                               copies, once a step; v is the worker's own. After its last backward, its AllReduces and
//                               TableReduces; all updates start after it                       [ZeroBubble23] section 4
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.hpp"
#include "core/plan/seating.hpp"

namespace pipewright::core {

enum class Kind : std::uint8_t {
  F,
  B,
  W,
  BW,
  R,
  AllReduce,
  AllGather,
  Update,
  Offload,
  Reload,
  Fetch,
  Store,
  TableReduce,
  NormReduce
};

// What a worker exchanges next to its compute: a row a stream. Within a stream the order is strict; streams wait for one
// another only where the rows of sim/stream_edges say so, as collectives of two communicators do. A new one is a row here,
// one of its kind there, and a price in StepCosts::collective.
enum class Among : std::uint8_t { Holders, Worker, Tied, All };
struct StreamRule {
  std::string_view name;  // "gradients"
  std::string_view op;    // what its ops are called: "all-reduce"
  // Who takes part in each of its ops, all in one order: in all copies the holders of a chunk, or the holders of all
  // chunks that share a table; or the worker alone, or all workers.
  Among among = Among::Holders;
  bool kernels = false;  // its ops are kernels of the device, which contend with those that compute
};
inline constexpr std::array kStreams = {
    StreamRule{.name = "gradients", .op = "all-reduce", .kernels = true},
    StreamRule{.name = "weights", .op = "all-gather", .kernels = true},
    StreamRule{.name = "out", .op = "offload", .among = Among::Worker},
    StreamRule{.name = "in", .op = "reload", .among = Among::Worker},
    StreamRule{.name = "tables", .op = "all-reduce of tied tables", .among = Among::Tied, .kernels = true},
    // Nobody computes beside it.
    StreamRule{.name = "norm", .op = "all-reduce of the norm", .among = Among::All}};
using StreamId = std::size_t;  // row of kStreams
inline constexpr StreamId kReductions = 0, kGathers = 1, kOut = 2, kIn = 3, kTables = 4, kNorm = 5,
                          kCompute = kStreams.size();

// What a kind of op does to others and to memory: a row a kind, which generators, engines, the books of memory and real
// runs look up. A micro-batch's stash goes when its `backward` and its `gradients` are over. The checkers (`validate`) know
// the rules by themselves.
struct KindRule {
  std::string_view name;     // "BW"
  std::string_view letters;  // in a label. PyTorch calls the whole backward B, its halves I (input) and W (weight)
  bool forward = false;      // takes what the chunk before has sent, and sends its output on
  bool backward = false;     // takes the gradient that the chunk behind has sent, and sends its own back
  bool gradients = false;    // completes its micro-batch's gradients of the weights
  bool weights = false;      // computes with the chunk's weights
  bool stashes = false;      // takes room for its micro-batch's stash
  bool rebuilds = false;     // takes room for what that has left out
  bool updates = false;      // makes the next version of the chunk's weights
  StreamId stream = kCompute;
  std::string_view words = {};  // of communication, in a sentence: "all-reduce"
};
inline constexpr std::array kKindRules = {
    KindRule{.name = "F", .letters = "F", .forward = true, .weights = true, .stashes = true},
    KindRule{.name = "B", .letters = "I", .backward = true, .weights = true},
    KindRule{.name = "W", .letters = "W", .gradients = true},
    KindRule{.name = "BW", .letters = "B", .backward = true, .gradients = true, .weights = true},
    KindRule{.name = "R", .letters = "R", .weights = true, .rebuilds = true},
    KindRule{.name = "AllReduce", .letters = "AR", .stream = kReductions, .words = "all-reduce"},
    KindRule{.name = "AllGather", .letters = "AG", .stream = kGathers, .words = "all-gather"},
    KindRule{.name = "Update", .letters = "U", .updates = true},
    KindRule{.name = "Offload", .letters = "OFFLOAD", .stream = kOut, .words = "offload"},
    KindRule{.name = "Reload", .letters = "RELOAD", .stream = kIn, .words = "reload"},
    KindRule{.name = "Fetch", .letters = "FETCH", .stream = kIn, .words = "weights from the host"},
    KindRule{.name = "Store", .letters = "STORE", .stream = kOut, .words = "gradients to the host"},
    KindRule{.name = "TableReduce", .letters = "TR", .stream = kTables, .words = "all-reduce of tied tables"},
    KindRule{.name = "NormReduce", .letters = "NR", .stream = kNorm, .words = "all-reduce of the norm"},
};
constexpr int kKinds = static_cast<int>(kKindRules.size());
constexpr const KindRule& rule(Kind kind) {
  return kKindRules[at(kind)];
}
std::string_view name(Kind kind);        // "?": not a kind
constexpr bool reads_stash(Kind kind) {  // the first such op of a micro-batch needs it here
  return rule(kind).rebuilds || rule(kind).backward;
}

struct Op {
  Kind kind{};
  std::uint16_t virtual_stage = 0;
  std::uint32_t micro_batch = 0;  // of AllReduce and Update: the round (flush schedules: 0)
  // Of TableReduce: which table. Of AllReduce: which bucket, 0 = the last layers' (first one ready); AllGather: pass, and kFromFew; Fetch: pass; Store:
  // 1 where the host adds to what it has of this step.
  std::uint32_t bucket : 31 = 0;
  // It and the op after it are one cell, made to overlap: F and a backward, as {0F5, 1B2}. Priced one after the other.
  std::uint32_t with_next : 1 = 0;
  bool operator==(const Op&) const = default;
};

// PyTorch's name of an op: "0F3" is the forward of micro-batch 3 on stage 0; BW is "0B3", B is "0I3", W is "0W3".
std::string label(const Op& op);

// One of a kind for each stream.
template <class T>
using ByStream = std::array<T, kStreams.size()>;

// Ops of one worker. The streams run side by side; within a stream the order is strict.
struct Lane {
  std::vector<Op> compute;  // F, R, B, W, BW, Update
  // AllReduce; AllGather; Offload or Store; Reload or Fetch; TableReduce; NormReduce
  ByStream<std::vector<Op>> communication;

  std::size_t ops() const;  // of all streams
  void add(const Op& op) {
    (rule(op.kind).stream == kCompute ? compute : communication[rule(op.kind).stream]).push_back(op);
  }
};

enum class Direction : std::uint8_t { Forward, Backward };

// For which pass an op reads its chunk's weights: Op::bucket of the AllGather that brings them.
constexpr Direction pass_of(Kind kind) {
  return rule(kind).forward ? Direction::Forward : Direction::Backward;
}

// In Op::bucket of an AllGather: from shards of Resharding::over members; behind an update; beside forwards, what one
// of them waits for and what runs beside it.
inline constexpr std::uint32_t kFromFew = 2, kBehindUpdate = 4, kBeforeForward = 8, kBesideForward = 16;
constexpr Direction pass_of_gather(const Op& gather) {
  return static_cast<Direction>(gather.bucket & 1);
}

// Cells of a list that hold several ops.
std::int64_t overlapped_cells(const std::vector<Op>& ops);

// After which pass a worker gives gathered weights away again. A chunk that the next op reads, too, is kept (the last one
// between its forward and its backward), unless `always`: then its next gather begins behind that op. [FSDP23] section 3.3
struct Resharding {
  bool after_forward = true;  // false: forwards that follow, and the backwards, find them
  bool after_backward = true;
  // What is kept after a forward is a shard of so many members, from which the next gather comes; 0: the one that is kept
  // anyway, of all that divide the weights.                              [PyTorchFSDP26]
  int over = 0;
  bool from_host = false;  // shards of weights and gradients lie in the host's memory           [ZeROInfinity21]
  bool always = false;
  bool operator==(const Resharding&) const = default;
};

// When weights are whole again that each of their holders updates in part, as training.zero: 1 says.
enum class UpdatedParts : std::uint8_t {
  None,           // each updates all
  BehindUpdate,   // directly behind the update
  BesideForwards  // beside the forwards of the next step: steps alike, so that one begins with the gathers of another
};

struct GivenSchedule;  // core/plan/given_schedule.hpp
const Dealing* dealing_of(const GivenSchedule& given);
int pipelines_of(const GivenSchedule& given);

// What a generator needs to know.
struct ScheduleShape {
  int stages = 1;          // K
  int virtual_stages = 1;  // v per stage
  int micro_batches = 1;   // M
  int group = 0;           // micro-batches that go through a chunk in turn, of a schedule in groups; 0: K
  int most_in_flight = 0;  // micro-batches that may be, of a schedule that limits them; 0: K
  int forwards = 1;        // micro-batches whose forwards run in a row: 2 doubles them  [Chimera21] section 3.5
  int slices = 1;          // Q: passes that are one micro-batch's; M counts passes  [Seq1F1B24] section 3.1
  int pipelines = 2;       // over the same workers, half of them each way                 [Chimera21] section 3.6
  Indexed<StageId, int> replicas{};        // r_k; empty: one each
  int data_parallel = 1;                   // D: with D > 1 or r_k > 1 gradients are all-reduced
  Indexed<StageId, bool> recompute{};      // empty: none
  bool recompute_except_last = false;      // micro-batch M - 1 is not recomputed
  Indexed<VirtualStageId, int> buckets{};  // of all-reduces; empty: one each
  bool blocking_sync = false;  // an update waits directly behind its backward: GradientSync::AtOnce, Blocking
  bool vertical_sync = false;
  ChunkOrder chunk_order = ChunkOrder::Loop;
  std::shared_ptr<const GivenSchedule> given{};  // what the schedule "file" runs; else nullptr
  int units = 1;                                 // chunks that a chunk of the generator's is cut into
  std::optional<Resharding> resharding{};        // of weights that are sharded over the copies; none: they are whole
  UpdatedParts updated = UpdatedParts::None;
  bool reduce_each = false;  // gradients are reduced after every micro-batch; else after the last
  // By table that several workers hold: the chunks with it, ascending. Its gradients are summed over all of them.
  std::vector<std::vector<VirtualStageId>> tied{};
  bool norm = false;  // with a flush: updates wait for the norm of all gradients
  // By chunk: its activations wait in the host's memory, not in a partner's; empty: none do.       [ZeROInfinity21]
  std::vector<bool> offloaded{};
  int update_every = 0;  // without a flush: micro-batches of a worker that make an update; 0: one
  // A round of them runs with the weights that the update before the last one made.      [PipeDream2BW20] section 3.1
  bool double_buffered = false;

  Seating seating() const {
    return {stages,        virtual_stages, chunk_order,
            micro_batches, data_parallel,  replicas,
            units,         pipelines,      given ? dealing_of(*given) : nullptr};
  }
  int chunks() const { return stages * virtual_stages * units; }
  StageId stage_of(VirtualStageId v) const { return seating().stage_of(v); }
  // Whose memory takes what a stage sends out of its own: its own where that is its host's.  [BPipe23] section 3.2
  StageId partner_of(StageId stage) const { return offloaded.empty() ? seating().opposite(stage) : stage; }
  // Offloads that may be on their way while a forward runs.
  std::size_t leaving_under_forward() const { return offloaded.empty() ? 0 : 1; }
  bool weights_on_host() const { return resharding && resharding->from_host; }
  int replicas_of(StageId stage) const { return seating().replicas_of(stage); }
  bool recomputes(StageId stage) const { return !recompute.empty() && recompute[stage]; }
  int buckets_of(VirtualStageId chunk) const { return buckets.empty() ? 1 : buckets[chunk]; }
};

// What of a schedule matters where only its plan is known: for costs, batches and launch files.
struct ScheduleFacts {
  // The last chunk does a backward directly after its forward; false: all forwards come first [GPipe19] fig. 2, or other
  // ops may come between.
  bool backward_at_once = true;
  bool takes_chunks = false;    // several of them on a stage                                   [Megatron21] section 2.2
  bool takes_replicas = false;  // several workers on a stage, which share its micro-batches  [PipeDream19] section 3.2
  // Micro-batches go through the chunks in groups, of K each where nothing is said, so K divides M. [Megatron21] section 2.2
  bool groups_of_stages = false;
  // What can be said of it, in keys of their own (kScheduleKeys):
  bool limits_in_flight = false;  // how many micro-batches a stage holds at most
  bool states_group = false;      // how many micro-batches are in a group                               [Megatron26]
  bool states_pipelines = false;  // how many there are over the same workers                [Chimera21] section 3.6
  bool states_slices = false;     // how many parts of a sequence run one after the other                [Seq1F1B24]
  bool states_forwards = false;   // how many forwards run at once                              [Chimera21] section 3.5
  bool states_round = false;      // how many micro-batches an update takes, without a flush          [PipeDream2BW20]
  bool uses_partner = false;      // activations wait in another stage's memory                          [BPipe23]
  bool pairs = false;  // cells of a forward and a backward that are made to run at once   [DeepSeekIII24] section 3.2.1
  std::string_view pytorch = {};  // its name in PyTorch's get_schedule_class; "": not there          [PyTorchPP26]
};

struct Schedule {
  std::string name;
  ScheduleShape shape;
  Indexed<PositionId, Lane> positions;  // every copy of the pipeline runs the same lists
  bool flush = true;                    // false: asynchronous, an update per round of micro-batches, no flush

  Seating seating() const { return shape.seating(); }
  PositionId position_of(WorkerId worker) const { return worker % static_cast<int>(positions.size()); }
  const Lane& lane_of(WorkerId worker) const { return positions[position_of(worker)]; }
  Rounds rounds() const { return {seating(), flush, shape.reduce_each, std::max(1, shape.update_every)}; }
};

// Of one copy, the positions that hold such a table, ascending.
std::vector<PositionId> holders_of_table(const ScheduleShape& shape, std::size_t table);
inline bool has_table(const ScheduleShape& shape, std::size_t table, VirtualStageId v) {
  return std::ranges::binary_search(shape.tied[table], v);
}
// Where an op of a stream is counted that several workers run together.
PositionId first_member(const ScheduleShape& shape, const Op& op);

// Without a flush, for each micro-batch: how many updates the weights have seen that stage 0 runs it with, where this is not just
// what is there, and other stages do likewise (vertical sync, double buffering). Empty: each takes its newest.
//                                                                  [PipeDream19] section 3.3, [PipeDream2BW20] section 3.1
std::vector<int> updates_seen(const Schedule& schedule);

// Independent check, knows no generator: every F and backward of every (v, m) exactly once and on its own worker, R and
// W where they belong, all-reduce and update rounds complete and in one order on all members, and no deadlock (the ops
// of all workers can be run in the given order). Returns "" or one sentence that names the offending op.
std::string validate(const Schedule& schedule);

}  // namespace pipewright::core
