// A virtual stage's layers compiled into straight lines of instructions, one line per kind of op: F, R, B, W and BW.
//
// The lines say which block of memory is taken when, and when it is given back. The executor follows them with
// pointers, the memory model with sizes alone: what one allocates, the other has counted.
//
// Blocks of one micro-batch:
//     value      output of a step                     kept for the backward: stash (rebuilt by R: recompute)
//     saved      what a step saves for its backward   likewise                    else: workspace, until its last use
//     scratch    of one pass of one step              workspace
//     gradient   of a value                           workspace; split backward: stash, until W has read it
//     message    a tensor in a received message       no block of its own: it stays in the message's slot
//
// Sums of several gradients of one tensor: those that arrive from later virtual stages first, in the order of the
// edges, then those of its users in this one, the last user first. Gradients of parameters are added to in the order of
// the worker's backward ops.
//
// What a virtual stage needs of others are its ports, the same pairs in the same order as StepCosts::edges.
//
// Tests: tests/runtime/execute_test.cpp, run_plan_test.cpp
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/model/graph.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/schedule.hpp"
#include "runtime/arena.hpp"
#include "runtime/backend.hpp"
#include "runtime/operations.hpp"

namespace pipewright::runtime {

struct PortTensor {
  LayerId layer = 0;  // that made it
  int value = -1;     // block
  int gradient = -1;  // into this stage: block that is sent back; out of it: block in the gradient's message. -1: none
  std::array<std::int64_t, 2> offset{}, gradient_offset{};  // in the message: full and last micro-batch
  std::array<std::int64_t, 2> bytes{};
};

// One end of an edge.
struct Port {
  int edge = 0;
  VirtualStageId peer = 0;
  std::vector<PortTensor> tensors;
  std::array<std::int64_t, 2> bytes{}, gradient_bytes{};  // of a message, every tensor at the backend's alignment
  bool kept = false;  // in: the backward reads some of it, so that the slot is held until then
};

enum class Verb : std::uint8_t {
  Allocate,        // block, tag
  Free,            // block
  LoadInput,       // block: the micro-batch's samples
  LoadLabels,      // block: of step
  Forward,         // step
  InputGradient,   // step, other = its list of target blocks
  WeightGradient,  // step
  Loss,            // block: one value per sample
  Add,             // block += other
  Copy,            // block = other
  Zero,            // block
  Receive,         // port in (activations) resp. out (gradients): waits, binds the tensors' blocks
  Send,            // port out (activations) resp. in (gradients)
  Release,         // port: its slot may be filled again
  Ready,           // bucket: its gradients of this micro-batch are complete
  // Attention over a sequence in parts, of step; `other`: how many parts before its own the keys in `block` are.
  KeysOfPart,      // own keys and values go into block
  AttendBegin,     // nothing was attended to so far
  Attend,          // to the keys in block
  GradientsBegin,  // block: room behind own keys for their gradients, zero
  // Of slices of a sequence, each with a micro-batch's number of its own: Attend and AttendGradient are to the keys of all
  // slices up to its own, with the blocks of those.
  AllocateForAll,  // block of all of these that have none yet, zero; tag
  AttendGradient,  // to the keys in block, whose gradients lie behind them
  GradientsEnd,    // block: gradients of own keys, which have come home alone
  RingSend,        // block, or of it what `other` (RingPart) says, to the device of the next part
  RingReceive,     // block: what the device of the part before has sent
  RingRelease,     // its slot may be filled again
  // Rows of experts, of step: from block to other; `forward`: as RowExchange says, else the other way.
  ExchangeSend,     // to the other devices, and what stays goes to its place
  ExchangeReceive,  // from them
  Bind,             // block lies where other does; synthetic runs only, like
  Spin,  // until the op of kind `step` has taken its time; other >= 0: until its gradients of that bucket are
         // complete
};

struct Instruction {
  Verb verb{};
  Tag tag = Tag::Workspace;
  bool forward = true;  // Receive, Send, Release: activations, else gradients; KeysOfPart: of a forward
  std::int32_t block = -1;
  std::int32_t step = -1;
  std::int32_t other = -1;
};

// Attention over a sequence in parts: blocks that go round, of full and last micro-batch, or that stay.
struct RingStep {
  int parts = 0;                        // 0: attention over a whole one, or no attention
  int keys = -1;                        // of a forward: own keys and values
  int keys_and_gradients = -1;          // of a backward: the same, and behind them their gradients
  int arrived = -1;                     // in a message
  std::array<std::int64_t, 2> bytes{};  // of keys and values
  bool slices = false;                  // one after the other here: nothing goes round, `keys` stay
  int gradients = -1;                   // of keys and values of slices
  std::int64_t gradients_at = 0;        // behind the largest keys of the run: nothing is added to keys in a slot
};
// What of a block is sent on.
enum class RingPart : std::uint8_t { Keys, KeysAndGradients, Gradients };

struct CodeStep {
  std::shared_ptr<const Program> program;
  const ProgramStep* step = nullptr;  // of `program`
  LayerId layer = 0;
  std::vector<int> inputs;  // blocks
  int output = -1, saved = -1, labels = -1;
  int output_gradient = -1;
  std::vector<int> input_gradients;        // targets of InputGradient; -1: not asked for
  std::array<int, 3> scratch{-1, -1, -1};  // by Pass
  int first_parameter = 0, parameters = 0;
  RingStep ring;
  const RowExchange* exchange() const { return std::get_if<RowExchange>(&step->spec); }
};

struct CodeParameter {
  ParameterTensor tensor;
  LayerId layer = 0;
  // Bytes, from the beginning of the stage's weights; and of its gradients, states and masters, which are fp32. The
  // same where weights are fp32.
  std::int64_t weight_offset = 0, offset = 0;
  bool of_experts = false;  // on several devices: each has as many values of its own
};

// Where workers share every sequence, or compute it slice by slice.
struct SequencePart {
  int of = 1;                                // how many parts there are
  std::int64_t tokens = 0;                   // of the model's own input
  std::array<std::int64_t, 2> ring_bytes{};  // of the largest message that goes round; 0: none does
};

// A run of values that a message carries, within a block and within the message: bytes.
struct ExchangeRun {
  std::int64_t in_block = 0, in_message = 0, bytes = 0;
};
// What a device sends to another of its group, or, `received`, where what it gets from it goes. `out`: rows on their way to
// their experts. Each sample's rows follow one another.
//     8 experts on 4 devices, rows of one sample: to device 1 runs 2 and 3 of 8; from device 1 run 1 of 4 of both experts
std::vector<ExchangeRun> exchange_runs(const CodeStep& step, bool out, bool received, int peer, std::int64_t samples,
                                       std::int64_t value_bytes);

struct ChunkCode {
  VirtualStageId virtual_stage = 0;
  std::vector<std::array<std::int64_t, 2>> blocks;  // bytes of the full and of the last micro-batch; messages: 0
  std::vector<CodeStep> steps;
  std::vector<CodeParameter> parameters;
  std::int64_t value_bytes = 4;                      // of a value of a tensor, and of a weight
  std::int64_t parameter_bytes = 0;                  // all weights, each tensor at the backend's alignment
  std::int64_t gradient_bytes = 0, state_bytes = 0;  // likewise: all gradients, one state of all (as many)
  std::vector<Port> in, out;
  std::vector<std::int64_t> bucket_begin;  // first byte of every all-reduce bucket, bucket 0 = the last layers'
  // By kind of op; F has two: keeping everything, and keeping the boundary only.
  std::vector<Instruction> forward, forward_boundary, rebuild, backward, backward_input, backward_weight;
  std::int64_t sample_values = 0;  // values per sample of the model's own input; 0: this stage does not read it
  bool sample_indices = false;
  std::array<std::int64_t, 2> exchange_bytes{};  // of the largest message of rows of experts to another device
  SequencePart part;                             // `sample_values` and `label_rows` are those of one
  std::int64_t label_rows = 0, classes = 0;      // of the loss; 0: none here
  // Of a synthetic run, of the full and of the last micro-batch: how long an op of every kind takes, and how long
  // before the end of its last backward the gradients of a bucket are complete.
  std::array<std::array<Time, 2>, kKinds> time{};
  std::array<std::vector<Time>, 2> ready_before_end;

  // Weights are copies, which the layers read, of masters in fp32, which the optimizer updates.
  bool has_masters() const { return value_bytes < 4; }
  const std::vector<Instruction>& line(Kind kind, bool recomputed) const;
};

inline std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Compiles every virtual stage of the plan. Throws InputError with one line per reason why layers cannot be run.
std::vector<ChunkCode> compile(const Plan& plan, const Model& model, const Training& training, const Backend& backend);

}  // namespace pipewright::runtime
