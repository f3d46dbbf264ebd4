#include "runtime/attention_lines.hpp"

#include <cstdint>

namespace pipewright::runtime {
namespace {

class AttentionLine {
 public:
  AttentionLine(std::vector<Instruction>& line, std::size_t s) : line_(line), step_(static_cast<std::int32_t>(s)) {}

  Instruction& add(Verb verb, int block, int other = -1) {
    Instruction& i = line_.emplace_back();
    i.verb = verb, i.block = block, i.step = step_, i.other = other;
    return i;
  }

 private:
  std::vector<Instruction>& line_;
  std::int32_t step_;
};

// Keys and values go round [RingAttention23]: while a device attends to those of one part, they are on their way to the
// next device.
void add_ring_forward(AttentionLine line, const RingStep& ring) {
  line.add(Verb::Allocate, ring.keys), line.add(Verb::KeysOfPart, ring.keys), line.add(Verb::AttendBegin, ring.keys);
  for (int hop = 0; hop < ring.parts; ++hop) {
    const int block = hop == 0 ? ring.keys : ring.arrived;
    if (hop + 1 < ring.parts) line.add(Verb::RingSend, block, static_cast<int>(RingPart::Keys));
    line.add(Verb::Attend, block, hop);
    line.add(hop == 0 ? Verb::Free : Verb::RingRelease, block);
    if (hop + 1 < ring.parts) line.add(Verb::RingReceive, ring.arrived);
  }
}
// And back with their gradients, which each device adds to; after the last hop they are at home.
void add_ring_backward(AttentionLine line, const RingStep& ring) {
  const int own = ring.keys_and_gradients;
  line.add(Verb::Allocate, own), line.add(Verb::KeysOfPart, own).forward = false;
  line.add(Verb::GradientsBegin, own);
  for (int hop = 0; hop < ring.parts; ++hop) {
    const int block = hop == 0 ? own : ring.arrived;
    line.add(Verb::AttendGradient, block, hop);
    const bool home = hop + 1 == ring.parts;
    line.add(Verb::RingSend, block, static_cast<int>(home ? RingPart::Gradients : RingPart::KeysAndGradients));
    line.add(hop == 0 ? Verb::Free : Verb::RingRelease, block);
    line.add(Verb::RingReceive, ring.arrived);
  }
  line.add(Verb::GradientsEnd, ring.arrived), line.add(Verb::RingRelease, ring.arrived);
}

// Keys and values of a slice stay until its backward, which follows those of all later slices; each of these adds to the
// gradients of the keys that it has seen.                                            [Seq1F1B24] section 3.1
void add_slice_forward(AttentionLine line, const RingStep& ring, bool again) {
  if (!again) line.add(Verb::Allocate, ring.keys).tag = Tag::Stash;
  if (!again) line.add(Verb::KeysOfPart, ring.keys);
  line.add(Verb::AttendBegin, ring.keys), line.add(Verb::Attend, ring.keys);
}
void add_slice_backward(AttentionLine line, const RingStep& ring) {
  line.add(Verb::AllocateForAll, ring.gradients).tag = Tag::Stash;
  for (const Verb verb : {Verb::GradientsBegin, Verb::AttendGradient, Verb::GradientsEnd, Verb::Free})
    line.add(verb, ring.gradients);
  line.add(Verb::Free, ring.keys);
}

}  // namespace

void add_attention_forward(std::vector<Instruction>& line, std::size_t s, const RingStep& ring, bool again) {
  ring.slices ? add_slice_forward({line, s}, ring, again) : add_ring_forward({line, s}, ring);
}
void add_attention_backward(std::vector<Instruction>& line, std::size_t s, const RingStep& ring) {
  ring.slices ? add_slice_backward({line, s}, ring) : add_ring_backward({line, s}, ring);
}

}  // namespace pipewright::runtime
