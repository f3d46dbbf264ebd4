// What a pipelined run must equal bit by bit: the same samples on one worker, without schedule, arena or transport.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/executor.hpp"
#include "runtime/interpreter.hpp"

namespace pipewright::runtime {

// Every virtual stage in one place, no arena and no transport: every block has memory of its own.
class Sequential {
 public:
  Sequential(const RunPlan& run, Backend& backend, const Data& data, const RunSettings& settings);

  std::vector<std::vector<float>> gradients(int expert_device);  // sequential_gradients

 protected:
  // Memory of the backend, or nothing.
  struct Block {
    std::unique_ptr<DeviceMemory> memory;
    std::byte* at() const { return memory == nullptr ? nullptr : memory->base(); }
  };
  // In fp32: gradients, states, weights as they are updated.
  Block zeros_of(std::size_t v) const { return zeros(run_.code[v].gradient_bytes); }
  Block copy_of(std::size_t v, const std::byte* from) const;
  Block stored_of(const ChunkCode& code, const Block& master) const;  // weights as layers read them
  std::vector<float> values_of(std::size_t v, const Block& block) const;
  void begin(std::int64_t step);  // `follow` reads its samples; messages of the one before are gone
  // What the ops of one micro-batch do, in order: of copies that share its sequences, or that hold the experts between them,
  // instruction by instruction, each for all of them. `gradients`: by copy; empty: none.
  void follow(CopyId first, std::size_t v, MicroBatchId m, const std::vector<Instruction>& line,
              const std::vector<std::byte*>& gradients);
  int together() const { return run_.plan->context_parallel * run_.plan->expert_parallel; }  // one of them is 1

  using MessageKey = std::tuple<int, bool, CopyId, MicroBatchId>;
  const RunPlan& run_;
  Backend& backend_;
  std::unique_ptr<Mover> mover_;
  const RunSettings& settings_;
  std::vector<Block> masters_;
  std::vector<std::byte*> weights_;  // that `follow` reads
  std::map<MessageKey, Block> messages_;
  std::map<std::pair<CopyId, MicroBatchId>, std::vector<float>> losses_;  // of its samples

 private:
  struct Held {
    Frame frame;
    std::map<int, Block> blocks;
    Block sent_on, arrived;        // what the copy before has sent, and what of that is being read
    std::map<int, Block> sent_by;  // by device: rows of experts
  };
  Block zeros(std::int64_t bytes) const;
  // Sums of a virtual stage, by the order in which rounds of reductions are closed.
  using Rounds = std::vector<std::vector<float>>;
  std::vector<float> without_other_experts(std::size_t v, std::vector<float> values, bool own) const;
  void add_copies(CopyId first, std::size_t v, int expert_device, Rounds& sums);
  void follow(const Instruction& i, const Interpreter::Place& place, CopyId copy, std::size_t v, MicroBatchId m);
  void send_on(const Instruction& i, const ChunkCode& code, const std::byte* block, std::size_t size, std::byte* to);
  void exchange(const Instruction& i, const Interpreter::Place& place, CopyId copy, std::size_t v, MicroBatchId m);
  void receive(const Instruction& i, const ChunkCode& code, Frame& frame, CopyId copy, MicroBatchId m,
               std::size_t size);
  void send(const Instruction& i, const ChunkCode& code, Frame& frame, CopyId copy, MicroBatchId m, std::size_t size);
  template <class Fill>
  void upload(std::byte* to, std::int64_t bytes, const Fill& fill);

  const Data& data_;
  SampleShape samples_;
  Interpreter interpreter_;
  std::int64_t step_ = 0;
  std::vector<Block> initial_;
  std::vector<std::vector<Block>> of_experts_;  // of chunks with experts on several devices, of the second on: initial_
  std::map<std::tuple<int, CopyId, MicroBatchId>, Held> frames_;
};

// The same samples on one worker without any schedule: for every micro-batch in the order in which the run's virtual
// stages ran their backwards, all forwards, then all backwards, stage after stage. Gradients of the first step, by
// virtual stage. Copies and replicas are summed in the order of the workers, of each micro-batch by itself where the run
// does so. Flush schedules only. `expert_device`: whose experts, where several devices hold them.
std::vector<std::vector<float>> sequential_gradients(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                     const RunSettings& settings, int expert_device = 0);

}  // namespace pipewright::runtime
