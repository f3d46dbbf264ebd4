// What a worker passes to others of its group in the middle of an op: keys and values of shared sequences, rows of experts.
#include <algorithm>

#include "core/check.hpp"
#include "runtime/worker.hpp"

namespace pipewright::runtime {

MessageSlot Worker::between_copies(int channel, std::int64_t number) const {
  const int slots = run_.channels[static_cast<std::size_t>(channel)].slots;
  return {channel, static_cast<int>((number - 1) % slots), number, std::max<std::int64_t>(0, number - slots)};
}

void Worker::send_on(const Instruction& i, const ChunkCode& code, const Frame& frame, std::size_t size) {
  const RingStep& ring = code.steps[static_cast<std::size_t>(i.step)].ring;
  const std::byte* const block = frame.at[static_cast<std::size_t>(i.block)];
  transport_.send(between_copies(ring_, ++sent_[static_cast<std::size_t>(ring_)]),
                  pieces_of(ring, static_cast<RingPart>(i.other), block, size));
}

// To the nearest behind this one first, and from the nearest before it.
void Worker::exchange(const Instruction& i, const ChunkCode& code, const Frame& frame, std::int64_t samples) {
  const CodeStep& step = code.steps[static_cast<std::size_t>(i.step)];
  const auto devices = static_cast<int>(step.exchange()->devices);
  const int self = run_.expert_device(copy_);
  const bool out = step.exchange()->back != i.forward, sends = i.verb == Verb::ExchangeSend;
  std::byte* const from = frame.at[static_cast<std::size_t>(i.block)];
  std::byte* const to = frame.at[static_cast<std::size_t>(i.other)];
  const auto runs = [&](bool received, int peer) {
    return exchange_runs(step, out, received, peer, samples, code.value_bytes);
  };
  if (sends) move_own(*backend_, runs(false, self), from, runs(true, self), to);
  for (int ahead = 1; ahead < devices; ++ahead) {
    const int channel = run_.between_copies(position_, ahead);
    const auto at = static_cast<std::size_t>(channel);
    if (sends) {
      pieces_.clear();
      for (const ExchangeRun& run : runs(false, (self + ahead) % devices))
        pieces_.push_back({from + run.in_block, run.in_message, run.bytes});
      transport_.send(between_copies(channel, ++sent_[at]), pieces_);
      continue;
    }
    const MessageSlot message = between_copies(channel, ++received_[at]);
    std::byte* const arrived = transport_.receive(message);
    transport_.fetch(message);
    for (const ExchangeRun& run : runs(true, (self + devices - ahead) % devices))
      backend_->copy(to + run.in_block, arrived + run.in_message, {run.bytes});
    give_back(channel, arrived);
  }
}

// The slot of the latest message between copies.
void Worker::give_back(int channel, std::byte* slot) {
  backend_->finish();
  const auto at = static_cast<std::size_t>(channel);
  if (settings_.poison) fill_with_nan(*mover_, slot, run_.channels[at].bytes[0]);
  transport_.release(between_copies(channel, received_[at]));
}

}  // namespace pipewright::runtime
