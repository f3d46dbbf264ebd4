#include "runtime/transports/staged.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/folds.hpp"

namespace pipewright::runtime {
namespace {

// For a transport that copies from the device into slots of the host.
class Downloads final : public Mover {
 public:
  explicit Downloads(Mover& device) : device_(device) {}
  void finish() override { device_.finish(); }
  void copy(void* to, const void* from, Bytes bytes) override { device_.download(to, from, bytes); }
  void upload(void* to, const void* from_host, Bytes bytes) override { host_->upload(to, from_host, bytes); }
  void download(void* to_host, const void* from, Bytes bytes) override { host_->download(to_host, from, bytes); }
  void sum(float* to, std::span<const float* const> terms, std::int64_t elements) override {
    host_->sum(to, terms, elements);
  }

 private:
  Mover& device_;
  std::unique_ptr<Mover> host_ = host_mover();
};

class Staged final : public Transport {
 public:
  Staged(std::unique_ptr<Transport> within, const RunPlan& run, Takes takes)
      : within_(std::move(within)), run_(run), takes_(takes) {}

  void bind(std::vector<std::vector<std::byte*>> slots, Movers movers) override {
    if (movers.worker == nullptr) {  // the run is over
      within_->bind({}, {});
      slots_.clear(), stages_.clear(), gathers_.clear(), sums_.clear(), out_ = {};
      return;
    }
    movers_ = movers;
    downloads_ = std::make_unique<Downloads>(*movers.worker);
    std::vector<std::vector<std::byte*>> stages(slots.size());
    for (std::size_t c = 0; c < slots.size(); ++c)
      for (std::byte* const slot : slots[c]) {
        stages_.push_back(movers.worker->staging({std::max(run_.channels[c].bytes[0], run_.channels[c].bytes[1])}));
        stages[c].push_back(stages_.back()->base());
        slots_[{static_cast<int>(c), static_cast<int>(stages[c].size()) - 1}].memory = slot;
      }
    Mover* const worker = takes_ == Takes::WithMover ? downloads_.get() : host_.get();
    within_->bind(std::move(stages), {worker, host_.get(), host_.get()});  // sums and parts are in the host's memory
  }

  Sent send(const MessageSlot& message, std::span<const Piece> pieces) override {
    if (takes_ == Takes::WithMover) return within_->send(message, pieces);
    auto end = most_over<std::int64_t>(pieces, [](const Piece& piece) { return piece.offset + piece.bytes; });
    std::byte* const base = grown(out_, {end}, *movers_.worker);
    std::vector<Piece> here;
    for (const Piece& piece : pieces) {
      movers_.worker->download(base + piece.offset, piece.from, {piece.bytes});
      here.push_back({base + piece.offset, piece.offset, piece.bytes});
    }
    return within_->send(message, here);
  }

  std::byte* receive(const MessageSlot& message) override {
    Slot& slot = slots_.at({message.channel, message.slot});
    slot.stage = within_->receive(message);
    return slot.memory;
  }

  void fetch(const MessageSlot& message) override {
    Slot& slot = slots_.at({message.channel, message.slot});
    if (std::exchange(slot.fetched, message.number) == message.number) return;
    const RunChannel& channel = run_.channels[at(message.channel)];
    if (channel.between_copies())
      return movers_.worker->upload(slot.memory, slot.stage, {channel.bytes[0]});  // of any length
    const auto in_step = static_cast<std::int64_t>(channel.micro_batches.size());
    const MicroBatchId m = channel.micro_batches[at((message.number - 1) % in_step)];
    movers_.worker->upload(slot.memory, slot.stage, {channel.bytes[run_.size_of(m)]});
  }

  void release(const MessageSlot& message) override { within_->release(message); }

  void all_reduce(int group, std::span<const WorkerId> members, float* data, std::int64_t elements) override {
    through_host(group, data, elements, [&](float* here) { within_->all_reduce(group, members, here, elements); });
  }
  void reduce_scatter(int group, std::span<const WorkerId> members, float* data,
                      std::span<const std::int64_t> begin) override {
    through_host(group, data, begin.back(), [&](float* here) { within_->reduce_scatter(group, members, here, begin); });
  }

  void all_gather(int group, std::span<const WorkerId> members, std::byte* data,
                  std::span<const std::int64_t> begin) override {
    const Bytes bytes{begin.back()};
    std::byte* const here = grown(gathers_[group], bytes, *movers_.gathers);
    movers_.gathers->download(here, data, bytes);
    within_->all_gather(group, members, here, begin);
    movers_.gathers->upload(data, here, bytes);
  }

  void meet() override { within_->meet(); }
  void check_asked_to_end() const override { within_->check_asked_to_end(); }
  void stop(const std::string& why) noexcept override { within_->stop(why); }

 private:
  struct Slot {
    std::byte* memory = nullptr;  // of the device
    const std::byte* stage = nullptr;
    std::int64_t fetched = 0;  // the last message that was brought over
  };
  struct Growing {
    Bytes bytes;
    std::unique_ptr<DeviceMemory> memory;
  };
  static std::byte* grown(Growing& block, Bytes bytes, const Mover& mover) {
    if (block.memory == nullptr || block.bytes < bytes) block = {bytes, mover.staging(bytes)};
    return block.memory->base();
  }
  void through_host(int group, float* data, std::int64_t elements, const auto& reduce) {
    const Bytes bytes{elements * static_cast<std::int64_t>(sizeof(float))};
    auto* const here = reinterpret_cast<float*>(grown(sums_[group], bytes, *movers_.collective));
    movers_.collective->download(here, data, bytes);
    reduce(here);
    movers_.collective->upload(data, here, bytes);
  }

  std::unique_ptr<Transport> within_;
  const RunPlan& run_;
  Takes takes_;
  Movers movers_;
  std::unique_ptr<Downloads> downloads_;
  std::unique_ptr<Mover> host_ = host_mover();
  std::vector<std::unique_ptr<DeviceMemory>> stages_;
  std::map<std::pair<int, int>, Slot> slots_;  // by channel and slot, of this receiver
  Growing out_;                                // of the worker's thread
  std::map<int, Growing> gathers_;             // by group, of the thread that gathers
  std::map<int, Growing> sums_;                // by group, of the collective stream
};

}  // namespace

std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> within, const RunPlan& run, Takes takes) {
  return std::make_unique<Staged>(std::move(within), run, takes);
}

}  // namespace pipewright::runtime
