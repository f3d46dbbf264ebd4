#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.hpp"
#include "runtime/clock.hpp"
#include "runtime/rank_state.hpp"

namespace pipewright::runtime {
namespace {

// Between a float segment of all members.
std::int64_t segment(std::int64_t elements, std::size_t i, std::size_t count) {
  return elements * static_cast<std::int64_t>(i) / static_cast<std::int64_t>(count);
}

class RankEndpoint final : public Transport, public RunWatch {
 public:
  RankEndpoint(Ranks::State& state, const RunPlan& run) : state_(state), run_(run) {}

  void bind(std::vector<std::vector<std::byte*>> slots, Movers) override { state_.take_slots(run_, slots); }

  Sent send(const MessageSlot& message, std::span<const Piece> pieces) override {
    const int to = run_.receiver(run_.channels[static_cast<std::size_t>(message.channel)], copy_);
    const std::int64_t begin = steady_ns();
    bool waited = false;
    state_.wait(
        [&] {
          const bool free = state_.freed(message) >= message.before;
          waited = waited || !free;
          return free;
        },
        [&] { return fmt::format("worker {} to read", to); });
    const Sent sent{waited ? steady_ns() - begin : 0, 0};
    if (to == state_.rank()) {
      for (const Piece& piece : pieces)
        std::memcpy(state_.memory(message) + piece.offset, piece.from, static_cast<std::size_t>(piece.bytes));
      state_.fill_own(message);
      return sent;
    }
    // The body is the slot as it will be: gaps between tensors are sent as zeros.
    static constexpr std::array<std::byte, 64> kZeros{};
    std::vector<std::span<const std::byte>> parts;
    std::int64_t at = 0;
    for (const Piece& piece : pieces) {
      for (; at < piece.offset; at += static_cast<std::int64_t>(parts.back().size()))
        parts.emplace_back(kZeros.data(), static_cast<std::size_t>(std::min<std::int64_t>(64, piece.offset - at)));
      parts.emplace_back(piece.from, static_cast<std::size_t>(piece.bytes));
      at += piece.bytes;
    }
    state_.post_message(to, message, parts);
    return sent;
  }

  std::byte* receive(const MessageSlot& message) override {
    const int from = sender(message);
    state_.wait([&] { return state_.filled(message) >= message.number; },
                [&] { return fmt::format("a message of worker {}", from); });
    return state_.memory(message);
  }

  void release(const MessageSlot& message) override {
    const int from = sender(message);
    if (from == state_.rank())
      state_.free_own(message);
    else
      state_.post_freed(from, message);
  }

  void take_back(const MessageSlot& message, std::span<const Room> rooms) override {
    const int keeper = run_.receiver(run_.channels[static_cast<std::size_t>(message.channel)], copy_);
    state_.ask_back(keeper, message);
    const Blob got = state_.take_mail(keeper, kTakenBack);
    if (got.empty()) throw PeerSilent(fmt::format("worker {} does not keep what was sent to it any more", keeper));
    for (const Room& room : rooms)
      std::memcpy(room.to, got.data() + room.offset, static_cast<std::size_t>(room.bytes));
  }

  void all_reduce(int group, std::span<const WorkerId> members, float* data, std::int64_t elements) override {
    std::vector<std::int64_t> begin;
    for (std::size_t i = 0; i <= members.size(); ++i)
      begin.push_back(segment(elements, i, members.size()));
    reduce_scatter(group, members, data, begin);
    const int down = kReduce + kMailPerGroup * group + 1;
    const std::size_t self = rank_in(members);
    for (std::size_t i = 0; i < members.size(); ++i)
      if (i != self) state_.post_mail(members[i], down, std::as_bytes(part(data, begin, self)));
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i == self) continue;
      const std::vector<float> got = floats(state_.take_mail(members[i], down), part(data, begin, i).size());
      std::ranges::copy(got, part(data, begin, i).begin());
    }
  }

  void reduce_scatter(int group, std::span<const WorkerId> members, float* data,
                      std::span<const std::int64_t> begin) override {
    const int up = kReduce + kMailPerGroup * group;
    const std::size_t self = rank_in(members);
    for (std::size_t i = 0; i < members.size(); ++i)
      if (i != self) state_.post_mail(members[i], up, std::as_bytes(part(data, begin, i)));
    const std::span<float> own = part(data, begin, self);
    std::vector<float> sum, term;
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::vector<float>& into = i == 0 ? sum : term;
      if (i == self)
        into.assign(own.begin(), own.end());
      else
        into = floats(state_.take_mail(members[i], up), own.size());
      for (std::size_t j = 0; i > 0 && j < sum.size(); ++j)
        sum[j] += term[j];
    }
    std::ranges::copy(sum, own.begin());
  }

  void all_gather(int group, std::span<const WorkerId> members, std::byte* data,
                  std::span<const std::int64_t> begin) override {
    const int about = kReduce + kMailPerGroup * group + 2;
    for (const WorkerId other : members)
      if (other != state_.rank()) state_.post_mail(other, about, part(data, begin, rank_in(members)));
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == state_.rank()) continue;
      const Blob got = state_.take_mail(members[i], about);
      PP_CHECK(got.size() == part(data, begin, i).size());
      std::ranges::copy(got, part(data, begin, i).begin());
    }
  }

  void meet() override {
    check_asked_to_end();
    if (state_.rank() == 0) {
      for (int r = 1; r < state_.size(); ++r)
        state_.take_mail(r, kMeetUp);
      for (int r = 1; r < state_.size(); ++r)
        state_.post_mail(r, kMeetDown, {});
    } else {
      state_.post_mail(0, kMeetUp, {});
      state_.take_mail(0, kMeetDown);
    }
  }

  void check_asked_to_end() const override { state_.check_asked_to_end(); }
  void stop(const std::string& why) noexcept override { state_.stop(why); }

  void check(const std::string& what) override {
    state_.check([&] { return what; });
  }
  std::string who_is_silent() override { return state_.who_is_silent(); }

 private:
  int sender(const MessageSlot& message) const {
    return run_.sender(run_.channels[static_cast<std::size_t>(message.channel)], copy_);
  }
  std::size_t rank_in(std::span<const WorkerId> members) const {
    return static_cast<std::size_t>(std::ranges::find(members, WorkerId{state_.rank()}) - members.begin());
  }
  template <class T>
  static std::span<T> part(T* data, std::span<const std::int64_t> begin, std::size_t i) {
    return {data + begin[i], static_cast<std::size_t>(begin[i + 1] - begin[i])};
  }
  static std::vector<float> floats(const Blob& bytes, std::size_t count) {
    PP_CHECK(bytes.size() == count * sizeof(float));
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  Ranks::State& state_;
  const RunPlan& run_;
  CopyId copy_ = state_.rank() / run_.plan->positions();
};

}  // namespace

std::unique_ptr<Transport> Ranks::endpoint(const RunPlan& run) {
  PP_CHECK(run.plan->workers() == size());
  return std::make_unique<RankEndpoint>(*state_, run);
}

}  // namespace pipewright::runtime
