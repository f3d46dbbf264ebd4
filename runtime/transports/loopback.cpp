#include "runtime/transports/loopback.hpp"

#include <cmath>

#include "core/check.hpp"
#include "kernels/storage.hpp"
#include "runtime/data.hpp"

namespace pipewright {
namespace {

// Values in [-1, 1): products of zeros may run faster than others.
std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(static_cast<double>(mixed(seed + static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1);
  return values;
}

template <class T>
std::vector<std::byte> as_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  T* const stored = reinterpret_cast<T*>(bytes.data());
  for (std::size_t i = 0; i < values.size(); ++i)
    stored[i] = T(values[i]);
  return bytes;
}

// As tensors of the run are stored: the bits of other numbers may be none at all.
std::vector<std::byte> random_message(std::int64_t bytes, Precision precision, std::uint64_t seed) {
  switch (precision) {
    case Precision::Bf16: return as_bytes<Bf16>(random_values(bytes / 2, seed));
    case Precision::Fp16: return as_bytes<Fp16>(random_values(bytes / 2, seed));
    case Precision::Fp32:
    case Precision::Tf32: break;
  }
  return as_bytes<float>(random_values(bytes / 4, seed));
}

class Loopback : public Transport {
 public:
  explicit Loopback(const RunPlan& run) : run_(run) {}

  void bind(std::vector<std::vector<std::byte*>> slots, Movers movers) override {
    slots_ = std::move(slots);
    for (std::size_t c = 0; c < slots_.size(); ++c) {
      if (slots_[c].empty()) continue;
      const std::int64_t bytes = std::max(run_.channels[c].bytes[0], run_.channels[c].bytes[1]);
      const std::vector<std::byte> message = random_message(bytes, run_.precision, c);
      for (std::byte* const slot : slots_[c])
        movers.worker->upload(slot, message.data(), {std::ssize(message)});
    }
  }
  Sent send(const MessageSlot&, std::span<const Piece>) override { return {}; }
  std::byte* receive(const MessageSlot& message) override {
    return slots_[static_cast<std::size_t>(message.channel)][static_cast<std::size_t>(message.slot)];
  }
  void release(const MessageSlot&) override {}
  void all_reduce(int, std::span<const WorkerId>, float*, std::int64_t) override {}
  void meet() override {}
  void stop(const std::string&) noexcept override {}

 private:
  const RunPlan& run_;
  std::vector<std::vector<std::byte*>> slots_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> loopback_transport(const RunPlan& run) {
  std::vector<std::unique_ptr<Transport>> endpoints;
  for (WorkerId worker = 0; worker < run.plan->workers(); ++worker)
    endpoints.push_back(std::make_unique<Loopback>(run));
  return endpoints;
}

}  // namespace pipewright
