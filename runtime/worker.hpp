// One worker of a run: its arena, the weights of its stage, and the loop that walks its op list, following each op's
// line of instructions (chunk_code.hpp). What it shares with others goes through its transport endpoint. Inside
// runtime/ only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/backend.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/data.hpp"
#include "runtime/interpreter.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/run_settings.hpp"
#include "runtime/transport.hpp"
#include "runtime/worker_result.hpp"

namespace pipewright::runtime {

// What a worker's streams beside its compute stream have thrown: the first of it, as the others end for that reason.
class FirstFailure {
 public:
  void note() {  // in a catch block
    const std::lock_guard lock(mutex_);
    if (!what_) what_ = std::current_exception();
  }
  void rethrow() const {  // when the streams have ended
    if (what_) std::rethrow_exception(what_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr what_;
};

// Of a worker whose activations wait elsewhere: what its threads tell one another.
struct Moving {
  explicit Moving(const RunMoves& moves);
  void begin() { may_leave = has_left = may_return = has_returned = 0; }  // of a step

  std::atomic<int> may_leave{0}, has_left{0}, may_return{0}, has_returned{0};  // moves of the step
  std::vector<std::vector<Piece>> leaving;                                     // by offload
  std::vector<std::vector<Room>> returning;                                    // by reload
  std::vector<std::vector<std::byte>> host;                                    // by slot, where the host keeps them
};

// One device's part of a run. Its many fields are what a step touches, each made once and kept for all steps.
class Worker {
 public:
  Worker(const RunPlan& run, WorkerId self, std::unique_ptr<Backend> backend, const Data& data, Transport& transport,
         const RunSettings& settings);

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { transport_.bind({}, {}); }  // a run that failed leaves messages on their way

  WorkerResult& result() { return result_; }
  std::string at() const;

  // Samples of the step, outside the timed part.
  void load(std::int64_t step);

  void meet() { transport_.meet(); }
  void step(std::int64_t number);
  // All ops of a step, and the step's collectives.
  std::size_t complete_steps() const { return complete_; }

  void resume();
  // The state after `done` steps goes to disk, if it is due. The next step begins when worker 0 has completed it.
  void checkpoint(int done);

  // Behind the last step: a partner may still need what this worker keeps for it.
  void end();
  void keep_weights();
  // "worker 1 at op 1F3: why"
  std::string told(const std::exception& error) const;
  void stop(const std::string& why);

 private:
  static constexpr int kAtCheckpoint = -2;

  struct Chunk {
    std::vector<std::byte*> weights, gradients, masters, states;
    std::byte* whole = nullptr;            // gathered weights, where only a part is held
    std::vector<std::byte*> whole_rounds;  // gradients that are not yet scattered, by turn
    std::size_t current = 0;
    std::byte* trained() const { return masters.empty() ? weights[current] : masters[0]; }  // what is updated, fp32
    // Of each buffer of the weights: updates of this step that went into what it holds, written where it is written.
    std::vector<std::int64_t> tags;
    std::vector<Frame> frames;  // by micro-batch
  };

  // The streams of sums and of gathers, each in a thread of its own.
  void or_note(void (Worker::*stream)(), FirstFailure& failed);
  void collectives();
  void gathers();
  void sum_tables();
  void sum_over_members(std::size_t v, std::byte* gradients, std::int64_t begin, std::int64_t end);
  // A bucket of a round's whole gradients: this worker's part of it is added to what it has.
  void sum_own_part(std::size_t v, std::byte* gradients, std::int64_t begin, std::int64_t end);
  void scatter(std::size_t v, std::int32_t turn, std::int64_t begin, std::int64_t end);

  // The run's beginning.
  void place_chunk(std::size_t v, const SteadyChunk& steady);
  void draw_part(std::size_t v);
  std::vector<WorkerId> members(VirtualStageId v) const;  // of the virtual stage's all-reduce

  // What this worker carries from step to step, in host memory.
  struct HostState {
    std::vector<ChunkState> chunks;              // views of `blocks`
    std::vector<std::vector<std::byte>> blocks;  // as in `state_blocks`
  };
  struct StateBlock {
    std::size_t v;
    std::byte* at;
    std::int64_t bytes;
  };
  std::vector<StateBlock> state_blocks() const;
  HostState downloaded_state();
  std::vector<float> values(std::size_t v, const std::byte* block) const;
  // Of all members' parts, fp32, in memory of its own beside what was counted. At a time when no other gather runs.
  std::vector<float> gathered(std::size_t v, const std::byte* part);

  // Sleeps until the counter has reached `value`: the two streams of a worker share its core.
  void wait_until(const std::atomic<int>& counter, int value);
  MessageSlot slot_of(int edge, bool forward, MicroBatchId m) const;
  MessageSlot message_of(const Instruction& i, const ChunkCode& code, MicroBatchId m) const;

  // Of an op where gradients are divided: waits for what must be over, and takes and gives room.
  void make_room(const Op& op, const WholeAt& whole);
  void give_room(const WholeAt& whole);
  void give_back(std::byte*& block, std::int64_t bytes);
  void begin_gathers(std::int32_t count);

  // Activations that wait elsewhere: what happens before and behind an op of the compute stream, and the streams beside.
  void move_before(std::size_t index);
  void move_behind(std::size_t index);
  void offloads();
  void reloads();
  Frame& frame_of(const Op& move);
  MessageSlot slot_of_move(std::size_t offload) const;
  void let(std::atomic<int>& counter, int value);

  // An op that has what it needs, and how far its line has been followed.
  struct Running {
    const ChunkCode& code;
    Frame& frame;
    MicroBatchId m;
    Interpreter::Place place;
    const std::vector<Instruction>& line;
    const WholeAt* whole;  // where gradients are divided
    std::size_t index, next = 0;
  };
  Running begun(const Op& op, std::size_t index);
  void fetch(const Running& op);
  void follow(Running& op, std::size_t end);
  // One op, or several that take turns (runtime/cells.hpp), and the instructions of their lines.
  void run(const Op& op, std::size_t index);
  void run_cell(std::size_t first, std::size_t count);
  void receive(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m, std::size_t size);
  void follow(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m,
              const Interpreter::Place& place, std::size_t index);
  // The same with a stamp after every piece of arithmetic: what was done since the one before counts to its layer.
  void time(std::span<const Instruction> line, const ChunkCode& code, Frame& frame, MicroBatchId m,
            const Interpreter::Place& place, std::size_t index);
  void send(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m, std::size_t size);
  // Synthetic runs: until this op has taken its time, or as much of it as until a bucket is complete.
  void spin(const Instruction& i, const ChunkCode& code, std::size_t size);
  void spin_until(std::int64_t ns) const;
  void release(const Instruction& i, const ChunkCode& code, Frame& frame, MicroBatchId m);
  // Keys and values of shared sequences and rows of experts, in a line's middle: the latest message, and the next one.
  MessageSlot between_copies(int channel, std::int64_t number) const;
  void send_on(const Instruction& i, const ChunkCode& code, const Frame& frame, std::size_t size);
  void give_back(int channel, std::byte* slot);
  void exchange(const Instruction& i, const ChunkCode& code, const Frame& frame, std::int64_t samples);
  void add_loss(const std::byte* block, std::int64_t samples, MicroBatchId m);
  void note_version(const Op& op, const OpVersions& versions);

  void update(const Op& op, const OpVersions& versions, std::size_t index);
  // The weights of a chunk, or this worker's part of them, which is then gathered with the others, or at the next step's
  // begin. `gradients`: of the part.
  void update_weights(std::size_t v, const OpVersions& versions, const std::byte* gradients);
  void gather_updated(std::size_t v);
  // Of a chunk whose update is divided: this worker's part of its gradients, in bytes.
  struct Part {
    std::int64_t begin, end;
  };
  std::size_t rank_in(std::size_t v) const;
  Part own_part(std::size_t v) const;
  Part own_weights(std::size_t v) const;  // in bytes of the weights as they are stored
  bool divides_gradients() const { return !run_.whole.empty(); }
  bool has_parts_of_masters(std::size_t v) const { return run_.chunks[v].parts > 1 && run_.code[v].has_masters(); }
  // As it is stored: alone, or among all.
  std::byte* part_of_weights(std::size_t v, std::size_t buffer = 0) const;
  // A tensor, or as much of it as lies in the part: where in it, in fp32 and as weights are stored.
  struct OwnPiece {
    std::int64_t at = 0, stored_at = 0, elements = 0;
  };
  std::vector<OwnPiece> own_pieces(std::size_t v) const;
  int versions_round(std::size_t index) const;
  // The first `buckets` buckets of a round are complete. `turn`: the round's number, in the order of the stream.
  void ready(VirtualStageId v, int turn, int buckets);

  const RunPlan& run_;
  WorkerId self_;
  CopyId copy_;
  PositionId position_;
  std::unique_ptr<Backend> backend_;
  const Data& data_;
  SampleShape samples_;
  Transport& transport_;
  const RunSettings& settings_;
  const Lane& lane_;
  const std::vector<OpVersions>& versions_;
  std::unique_ptr<Mover> mover_, beside_, gathering_;  // of this thread; of the streams of sums and of gathers
  ArenaUse counted_;                                   // what the arena will be used for
  std::unique_ptr<DeviceMemory> memory_;
  Arena arena_;
  WholeRoom room_;
  const RunMoves& moves_;
  Moving moving_;
  Interpreter interpreter_;
  std::vector<char> closes_;
  std::vector<Chunk> chunks_;  // by virtual stage
  std::map<MicroBatchId, std::vector<std::byte>> inputs_;
  std::map<MicroBatchId, std::vector<std::int64_t>> labels_;
  std::vector<std::int64_t> updates_;
  std::vector<std::vector<WorkerId>> members_, with_my_experts_;  // by virtual stage; the latter of those
  std::vector<std::vector<std::int64_t>> weight_parts_;           // by virtual stage, RunPlan::weight_parts
  std::vector<std::atomic<int>> ready_, done_;                    // buckets of all rounds of the step, by virtual stage
  std::atomic<int> may_gather_{0}, has_gathered_{0};              // gathers of the step
  std::atomic<bool> stopped_{false};
  std::vector<Piece> pieces_;
  std::vector<float> losses_;  // of a micro-batch
  std::vector<UpdatedParameter> updated_;
  struct Stamp {
    LayerId layer;
    Pass pass;
  };
  std::vector<Stamp> stamps_;                          // of one op, where layers are timed; marks 1, 2, ...
  double mark_cost_ = 0;                               // ns of setting a mark, where layers are timed
  int ring_ = -1;                                      // channel
  std::vector<std::int64_t> sent_, received_;          // messages between copies, by channel
  std::int64_t step_ = 0, waited_ = 0, op_began_ = 0;  // ns: waited by the current op; of the clock
  bool crowded_;                                       // more threads than cores: who spins sleeps as long as it can
  WorkerStep* record_ = nullptr;
  std::atomic<int> at_op_{-1};  // of the compute stream
  std::size_t complete_ = 0;
  WorkerResult result_;
};

}  // namespace pipewright::runtime
