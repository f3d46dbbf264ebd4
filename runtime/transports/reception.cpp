#include "runtime/transports/reception.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "core/check.hpp"
#include "core/ids.hpp"
#include "runtime/transports/proof.hpp"

namespace pipewright::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCallsAtOnce = 64;  // then those who are here are heard

struct Caller {
  Socket socket;
  Address from;
  Challenge challenge;
  Claim claim;
  std::size_t have = 0;  // bytes of the claim
  Deadline patience;
  bool proven = false;  // it knows the key; it is here once it says that it has believed us, too
  bool gone = false;
};

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

// Where it is and who comes there.
std::string waiting_at(int listener) {
  const Address own = own_end(listener);
  return text_of(own) + (is_everywhere(own) ? ": all addresses of this machine"
                         : is_loopback(own) ? ": only processes of this machine reach it; for others, MASTER_ADDR is "
                                              "another address of it"
                                            : "");
}

// What was read into `message` so far, and what there is now.
ssize_t hear(int descriptor, void* message, std::size_t have, std::size_t bytes) {
  return ::recv(descriptor, static_cast<char*>(message) + have, bytes - have, MSG_DONTWAIT);
}
bool nothing_yet(ssize_t got) {
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}
// A message that a fresh connection has room for.
template <class Message>
bool say(int descriptor, const Message& message) {
  return ::send(descriptor, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof message);
}

class Reception {
 public:
  Reception(int listener, const Awaited& awaited, std::vector<Socket>& peers, std::vector<Address>* addresses)
      : listener_(listener), awaited_(awaited), peers_(peers), addresses_(addresses) {}

  void run() {
    while (!all_here()) {
      if (seconds_to(awaited_.end) <= 0) throw late();
      attend();
    }
  }

 private:
  // Who calls rank 0 stays until it has the roster: one that went away while others came is awaited again. Who calls
  // another rank has met all others, perhaps, and may have left.
  bool all_here() {
    if (!missing().empty()) return false;
    for (int r = 1; awaited_.launch.rank == 0 && r < awaited_.launch.size; ++r)
      if (!is_open(of(r).get())) of(r) = Socket();
    return missing().empty();
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = awaited_.first; r < awaited_.launch.size; ++r)
      if (r != awaited_.launch.rank && !of(r)) ranks.push_back(r);
    return ranks;
  }
  Socket& of(int rank) const { return peers_[at(rank)]; }

  InputError late() const {
    const Launch& launch = awaited_.launch;
    return InputError(fmt::format(
        "{} did not come within {} s: start {} processes with the same MASTER_ADDR and MASTER_PORT, or wait longer "
        "with "
        "--timeout (rank {} waits at {}){}",
        list_of(missing()), awaited_.timeout_s, launch.size, launch.rank, waiting_at(listener_),
        unproven_.empty() ? ""
                          : fmt::format("; a caller from {} did not prove that it belongs to this run: start all ranks "
                                        "with the same PIPEWRIGHT_SECRET",
                                        unproven_)));
  }

  // Until somebody calls or says something, or has had its time.
  void attend() {
    std::vector<pollfd> list = {{listener_, POLLIN, 0}};
    Deadline until = awaited_.end;
    for (const Caller& caller : callers_) {
      list.push_back({caller.socket.get(), POLLIN, 0});
      if (!caller.proven) until = std::min(until, caller.patience);
    }
    const double seconds = std::clamp(seconds_to(until), 0.0, 1.0);
    ::poll(list.data(), list.size(), static_cast<int>(seconds * 1000) + 1);
    for (std::size_t i = 0; i < callers_.size(); ++i)
      if (list[i + 1].revents != 0) hear_out(callers_[i]);
    const Deadline now = Clock::now();
    std::erase_if(callers_, [&](const Caller& one) { return one.gone || (!one.proven && now >= one.patience); });
    if (list[0].revents != 0) let_in();
  }

  void let_in() {
    for (int i = 0; i < kCallsAtOnce; ++i) {
      Caller caller;
      caller.from.length = sizeof caller.from.at;
      caller.socket =
          Socket(::accept4(listener_, reinterpret_cast<sockaddr*>(&caller.from.at), &caller.from.length, SOCK_CLOEXEC));
      if (!caller.socket) {
        if (errno != EMFILE && errno != ENFILE) return;
        if (!make_room()) ::poll(nullptr, 0, 10);  // no descriptor is free; one may be soon
        return;
      }
      if (callers_.size() >= kMostCallers && !make_room()) continue;
      caller.challenge.random = random_digest();
      caller.patience = Clock::now() + kPatience;
      if (say(caller.socket.get(), caller.challenge)) callers_.push_back(std::move(caller));
    }
  }
  bool make_room() {
    const auto oldest = std::ranges::find_if(callers_, [](const Caller& one) { return !one.proven; });
    if (oldest == callers_.end()) return false;
    callers_.erase(oldest);
    return true;
  }

  void hear_out(Caller& caller) {
    char stays = 0;
    const ssize_t got = caller.proven ? hear(caller.socket.get(), &stays, 0, sizeof stays)
                                      : hear(caller.socket.get(), &caller.claim, caller.have, sizeof caller.claim);
    if (nothing_yet(got)) return;
    caller.gone = got <= 0;
    if (caller.gone) return;
    if (caller.proven) return welcome(caller);
    caller.have += at(got);
    if (caller.have == sizeof caller.claim) judge(caller);
  }

  void judge(Caller& caller) {
    const Claim& claim = caller.claim;
    const Launch& launch = awaited_.launch;
    caller.gone = claim.magic != kRankMagic || claim.called != launch.rank ||
                  !same(claim.proof, proof_of(awaited_.key, caller.challenge, claim));
    if (caller.gone) {
      if (claim.magic == kRankMagic) unproven_ = host_text(caller.from);
      return;
    }
    if (claim.world != launch.size)
      refuse(caller, fmt::format("rank {} counts {} ranks, rank {} counts {}; start all with the same WORLD_SIZE",
                                 claim.caller, claim.world, launch.rank, launch.size));
    if (is_taken(claim.caller)) refuse(caller, twice(claim.caller));
    caller.proven = true;
    caller.gone = !reply(caller, false);
  }
  bool is_taken(int rank) const {
    return rank < awaited_.first || rank >= awaited_.launch.size || (of(rank) && is_open(of(rank).get()));
  }
  static std::string twice(int rank) {
    return fmt::format("two processes say that they are rank {}; give every process a RANK of its own", rank);
  }

  bool reply(const Caller& caller, bool refused) const {
    Reply words{.refused = refused ? 1 : 0, .world = awaited_.launch.size};
    words.proof = proof_of(awaited_.key, caller.challenge, caller.claim, words);
    return say(caller.socket.get(), words);
  }
  [[noreturn]] void refuse(const Caller& caller, const std::string& why) const {
    reply(caller, true);
    throw InputError(why);
  }

  void welcome(Caller& caller) {
    const int rank = caller.claim.caller;
    if (is_taken(rank)) throw InputError(twice(rank));
    without_delay(caller.socket.get());
    if (addresses_ != nullptr) (*addresses_)[at(rank)] = with_port(caller.from, caller.claim.port);
    of(rank) = std::move(caller.socket);
    caller.gone = true;  // from here: it is a peer now
  }

  int listener_;
  const Awaited& awaited_;
  std::vector<Socket>& peers_;
  std::vector<Address>* addresses_;
  std::vector<Caller> callers_;  // in the order in which they came
  std::string unproven_;         // whose claim had a wrong proof
};

}  // namespace

void take_calls(int listener, const Awaited& awaited, std::vector<Socket>& peers, std::vector<Address>* addresses) {
  Reception(listener, awaited, peers, addresses).run();
}

}  // namespace pipewright::runtime
