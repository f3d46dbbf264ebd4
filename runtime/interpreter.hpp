// The arithmetic of a line of instructions: what the executor and the sequential reference share. Inside runtime/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/backend.hpp"
#include "runtime/chunk_code.hpp"
#include "runtime/data.hpp"
#include "runtime/transport.hpp"

namespace pipewright::runtime {

// One micro-batch of one virtual stage: where its blocks lie; nullptr: not held.
struct Frame {
  std::vector<std::byte*> at;
  std::vector<char> holds;  // by port in: its activations' slot
};

class Interpreter {
 public:
  explicit Interpreter(Backend& backend) : backend_(backend) {}

  struct Place {
    const ChunkCode* code = nullptr;
    Frame* frame = nullptr;
    std::size_t size = 0;  // 1: the last micro-batch
    std::int64_t samples = 0;
    const std::byte* weights = nullptr;
    std::byte* gradients = nullptr;
    float loss_scale = 1;
    ContextPart part;
    std::vector<Frame*> slices = {};  // of the micro-batch, up to its own; empty: sequences are whole
  };

  // Arithmetic of steps, Add, Copy, Zero; other verbs are the caller's.
  void compute(const Instruction& instruction, const Place& place);

 private:
  void compute_shared(const Instruction& instruction, const StepArguments& a, const Place& place);
  StepArguments arguments(const CodeStep& step, const Place& place);

  Backend& backend_;
  std::vector<const void*> inputs_;
  std::vector<void*> input_gradients_;
  std::vector<const void*> parameters_;
  std::vector<float*> parameter_gradients_;
};

// What goes to the next device of a ring.
std::vector<Piece> pieces_of(const RingStep& ring, RingPart part, const std::byte* block, std::size_t size);
// Number of the first sample of a micro-batch, counted over the whole run.
std::int64_t first_sample(const Plan& plan, std::int64_t step, CopyId copy, MicroBatchId m);
// One sample of the model's input as a run stores it: bytes, and what lies there. Data are fp32, or token numbers.
std::int64_t sample_bytes(const ChunkCode& code);
void store_sample(const ChunkCode& code, Precision precision, const Data& data, const SampleShape& shape,
                  const ContextPart& part, std::int64_t sample, std::byte* to);
void store_labels(const ChunkCode& code, const Data& data, const SampleShape& shape, const ContextPart& part,
                  std::int64_t sample, std::int64_t* to);
// What stays on its device in an exchange of rows of experts.
void move_own(Backend& backend, const std::vector<ExchangeRun>& from_runs, const std::byte* from,
              const std::vector<ExchangeRun>& to_runs, std::byte* to);
// The initial weights of a virtual stage in fp32, laid out as its gradients, go to `block`, which is zero, piece by
// piece: several threads draw what one mover moves. A value depends on seed, tensor and place alone.
// `expert_device`: whose experts, where several devices hold them.
void draw_weights(const ChunkCode& code, std::uint64_t seed, Mover& mover, std::byte* block, int expert_device = 0);
// Weights as the layers read them, of their masters.
void store_weights(Backend& backend, const ChunkCode& code, const std::byte* masters, std::byte* weights);

}  // namespace pipewright::runtime
