#include "runtime/ranks.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "runtime/clock.hpp"
#include "runtime/rank_state.hpp"

namespace pipewright::runtime {
namespace {

using Clock = std::chrono::steady_clock;

Blob joined(const std::vector<Blob>& blobs) {
  BytesOut out;
  for (const Blob& blob : blobs)
    out.put(blob);
  return out.bytes();
}

}  // namespace

ClockOffset clock_offset(const std::vector<ClockReading>& readings) {
  PP_CHECK(!readings.empty());
  const auto fastest = std::ranges::min_element(
      readings, [](const auto& a, const auto& b) { return a.answered - a.asked < b.answered - b.asked; });
  const std::int64_t half = (fastest->answered - fastest->asked) / 2;
  return {fastest->said - (fastest->asked + half), half};
}

std::string difference(const std::vector<MustMatch>& ours, const std::vector<MustMatch>& theirs, int rank) {
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    if (i >= ours.size() || i >= theirs.size() || ours[i].what != theirs[i].what)
      return fmt::format("rank {} runs another version of pipewright than rank 0; start the same one everywhere", rank);
    if (ours[i].hash == theirs[i].hash && ours[i].text == theirs[i].text) continue;
    const std::string how =
        ours[i].text == theirs[i].text
            ? fmt::format("{}; hashes {:016x} there, {:016x} here", ours[i].text, theirs[i].hash, ours[i].hash)
            : fmt::format("{} there, {} here", theirs[i].text, ours[i].text);
    return fmt::format(
        "rank {} differs from rank 0 in its {} ({}); start all ranks with the same program, scenario and options", rank,
        ours[i].what, how);
  }
  return "";
}

Ranks::Ranks(std::unique_ptr<Wire> wire, double timeout_s)
    : state_(std::make_unique<State>(std::move(wire), timeout_s)) {
  const Blob all = broadcast(joined(gathered(bytes_of(home()))));
  BytesIn in(all);
  for (int r = 0; r < size(); ++r) {
    const Blob one = in.list<std::byte>();
    state_->homes.push_back(home_of(BytesIn(one)));
  }
  // Ranks of other machines ask rank 0's clock, one after the other.
  for (int r = 1; r < size(); ++r) {
    if (state_->homes[at(r)].boot == state_->homes[0].boot) continue;
    std::vector<ClockReading> readings;
    for (int i = 0; i < 64; ++i) {
      if (rank() == 0) {
        state_->take_mail(r, kClock);
        state_->post_mail(r, kClock, BytesOut().put(steady_ns()).bytes());
      } else if (rank() == r) {
        const std::int64_t asked = steady_ns();
        state_->post_mail(0, kClock, {});
        const Blob said = state_->take_mail(0, kClock);
        readings.push_back({asked, BytesIn(said).get<std::int64_t>(), steady_ns()});
      }
    }
    if (rank() == r) state_->clock = clock_offset(readings);
  }
  for (const Blob& one : gathered(BytesOut().put(state_->clock).bytes()))
    state_->clocks.push_back(BytesIn(one).get<ClockOffset>());
}

Ranks::~Ranks() = default;

int Ranks::rank() const {
  return state_->rank();
}
int Ranks::size() const {
  return state_->size();
}

void Ranks::agree(const std::vector<MustMatch>& ours) {
  BytesOut out;
  out.put(static_cast<std::uint64_t>(ours.size()));
  for (const MustMatch& one : ours)
    out.put(one.what).put(one.text).put(one.hash);
  std::string verdict;
  const std::vector<Blob> all = gathered(out.bytes());
  for (std::size_t r = 1; r < all.size() && verdict.empty(); ++r) {
    BytesIn in(all[r]);
    std::vector<MustMatch> theirs(in.counted(1));
    for (MustMatch& one : theirs)
      one.what = in.text(), one.text = in.text(), one.hash = in.get<std::uint64_t>();
    verdict = difference(ours, theirs, static_cast<int>(r));
  }
  const Blob told = broadcast(BytesOut().put(verdict).bytes());
  if (const std::string text = BytesIn(told).text(); !text.empty()) throw InputError(text);
}

std::vector<Blob> Ranks::gathered(const Blob& ours) {
  state_->post_mail(0, kGather, ours);
  return rank() == 0 ? state_->take_mail_of_all(kGather) : std::vector<Blob>{};
}

Blob Ranks::broadcast(const Blob& ours) {
  if (rank() != 0) return state_->take_mail(0, kBroadcast);
  for (int r = 1; r < size(); ++r)
    state_->post_mail(r, kBroadcast, ours);
  return ours;
}

void Ranks::run_is_over() {
  for (int r = 0; r < size(); ++r)
    state_->post_mail(r, kRunOver, {});
  state_->take_mail_of_all(kRunOver);
  state_->forget_slots();
}

bool Ranks::recovered() {
  return state_->recovered();
}

std::string Ranks::first_failure(const std::string& ours) {
  std::string first;
  const std::vector<Blob> all = gathered(BytesOut().put(ours).bytes());
  for (std::size_t r = 0; r < all.size() && first.empty(); ++r) {
    const std::string theirs = BytesIn(all[r]).text();
    if (!theirs.empty()) first = r == 0 ? theirs : fmt::format("rank {}: {}", r, theirs);
  }
  const Blob told = broadcast(BytesOut().put(first).bytes());
  return BytesIn(told).text();
}

void Ranks::stop(const OutOfArena& error) noexcept {
  state_->stop(error.what(), dynamic_cast<const OutOfDevice*>(&error) != nullptr ? kOutOfDevice : kOutOfArena);
}

void Ranks::throw_if_out_of_memory() const {
  state_->throw_if_out_of_memory();
}

std::vector<Blob> Ranks::salvaged(const Blob& ours) {
  std::vector<Blob> all(rank() == 0 ? at(size()) : 0);
  if (!gone(0)) try {
      state_->post_mail(0, kSalvage, ours);
    } catch (const std::exception&) {  // rank 0 hangs: this rank tells for itself
    }
  if (rank() != 0) return all;
  // The launcher that has sent SIGTERM kills a second later.
  const auto end = Clock::now() + std::chrono::milliseconds(State::is_terminated() ? 300 : 2000);
  for (int r = 0; r < size(); ++r)
    state_->wait_at_most(std::chrono::duration<double>(end - Clock::now()).count(), [&] {
      // A rank that had done its last step has sent its result already.
      Blob& of_it = all[at(r)];
      return state_->found_mail(r, kGather, of_it) || state_->found_mail(r, kSalvage, of_it) || state_->gone_in_wait(r);
    });
  return all;
}

bool Ranks::gone(int rank) const {
  return state_->has_ended(rank);
}

bool Ranks::answers(int rank) {
  return !gone(rank) && state_->answers(rank);
}

int Ranks::cores() const {
  std::map<std::string, std::set<int>> all;
  for (const Home& home : state_->homes)
    all[home.boot].insert(home.cores.begin(), home.cores.end());
  std::size_t count = 0;
  for (const auto& [boot, cores] : all)
    count += cores.size();
  return static_cast<int>(count);
}

int Ranks::machines() const {
  std::set<std::string> boots;
  for (const Home& home : state_->homes)
    boots.insert(home.boot);
  return static_cast<int>(boots.size());
}

int Ranks::own_core(int threads) const {
  const Home& here = state_->homes[at(rank())];
  int neighbours = 0, before = 0;
  bool alike = true;
  for (std::size_t r = 0; r < state_->homes.size(); ++r) {
    if (state_->homes[r].boot != here.boot) continue;
    alike = alike && state_->homes[r].cores == here.cores;
    before += static_cast<int>(r) < rank() ? 1 : 0;
    ++neighbours;
  }
  // Cores that the launcher has given out differ from rank to rank, and are the launcher's choice.
  if (!alike || neighbours * threads > static_cast<int>(here.cores.size())) return -1;
  return here.cores[at(before)];
}

ClockOffset Ranks::clock() const {
  return state_->clock;
}

std::string Ranks::clocks() const {
  auto error = most_over<std::int64_t>(state_->clocks, &ClockOffset::error);
  if (machines() < 2) return "";
  return fmt::format("times of {} machines are on rank 0's clock, to within {:.3g} us", machines(),
                     static_cast<double>(error) / 1000);
}

void Ranks::send(int to, const Blob& bytes) {
  state_->post_mail(to, kLetter, bytes);
}
Blob Ranks::receive(int from) {
  return state_->take_mail(from, kLetter);
}

int Ranks::leave(int status, const std::function<void()>& left_alone) noexcept {
  return state_->leave(status, left_alone);
}

}  // namespace pipewright::runtime
