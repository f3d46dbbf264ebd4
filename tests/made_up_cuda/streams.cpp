#include "tests/made_up_cuda/streams.hpp"

#include <algorithm>

namespace pipewright::tests::made_up_cuda {
namespace {

// When the first thing of a stream comes to its end; nothing: it waits for something that is not known yet.
std::optional<std::int64_t> end_of_first(const Stream& stream, std::int64_t now) {
  const Item& item = stream.items.front();
  const std::int64_t start = std::max(stream.free_at, item.asked);
  if (item.awaited != nullptr)
    return item.awaited->passed ? std::optional(std::max(start, item.awaited->at)) : std::nullopt;
  if (item.gate != nullptr) {
    constexpr std::int64_t kLongest = 10'000'000'000;  // as kernels/probes.cu has it
    if (item.gate[0] == 0 && now - start < kLongest) return std::nullopt;
    if (item.gate[0] == 0) item.gate[1] = 1;
    return std::max(start, now);
  }
  return start + item.takes;
}

}  // namespace

Stream* Streams::add() {
  return streams_.emplace_back(std::make_unique<Stream>()).get();
}

void Streams::drop(Stream* stream) {
  dropped_.push_back(stream);
}

bool Streams::has(const Stream* stream) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& one) { return one.get() == stream; });
}

void Streams::go_on(std::int64_t now) {
  for (;;) {
    Stream* first = nullptr;
    std::int64_t at = now;
    for (const auto& stream : streams_) {
      if (stream->items.empty()) continue;
      const auto end = end_of_first(*stream, now);
      if (!end || *end > at || (first != nullptr && *end == at)) continue;
      first = stream.get(), at = *end;
    }
    if (first == nullptr) break;
    end(*first, at);
  }
  std::erase_if(dropped_, [&](const Stream* dropped) {
    if (!dropped->items.empty()) return false;
    std::erase_if(streams_, [&](const auto& stream) { return stream.get() == dropped; });
    return true;
  });
}

std::optional<std::int64_t> Streams::next_end(std::int64_t now) const {
  std::optional<std::int64_t> out;
  for (const auto& stream : streams_) {
    if (stream->items.empty()) continue;
    const auto end = end_of_first(*stream, now);
    if (end && (!out || *end < *out)) out = end;
  }
  return out;
}

void Streams::end(Stream& stream, std::int64_t at) {
  const Item item = std::move(stream.items.front());
  stream.items.pop_front();
  ++stream.done;
  stream.free_at = at;
  if (item.reached != nullptr) item.reached->passed = true, item.reached->at = at;
  if (item.effect) item.effect();
}

void Streams::clear(int device) {
  for (const auto& stream : streams_) {
    if (stream->device != device) continue;
    for (const Item& item : stream->items)
      if (item.reached != nullptr) item.reached->passed = true, item.reached->at = stream->free_at;
    stream->done += std::ssize(stream->items);
    stream->items.clear();
  }
}

}  // namespace pipewright::tests::made_up_cuda
