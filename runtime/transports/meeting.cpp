#include "runtime/transports/meeting.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include "core/check.hpp"
#include "core/ids.hpp"
#include "core/plain_words.hpp"
#include "runtime/transports/proof.hpp"
#include "runtime/transports/reception.hpp"

namespace pipewright::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// What rank 0 says to each rank when all have come; behind it the addresses, by rank.
struct Roster {
  Digest run{};  // random: the run's own key is made of it
};

// This machine alone is meant.
bool means_loopback(const std::string& host) {
  std::array<std::byte, sizeof(in6_addr)> binary{};
  return host.find("localhost") != std::string::npos || host == "ip6-loopback" ||
         ::inet_pton(AF_INET, host.c_str(), binary.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), binary.data()) == 1;
}

void check_secret(const MeetingPoint& point, const Address& address) {
  if (!point.secret.empty() || is_loopback(address)) return;
  throw InputError(fmt::format(
      "MASTER_ADDR={} ({}) is an address that other machines can reach, and there a run needs a secret that all its "
      "ranks know: make one with `export {}=$(head -c 32 /dev/urandom | base64)` and start every rank with it "
      "(docs/how-it-works/running.md); where all ranks run on this machine, MASTER_ADDR=localhost needs none",
      point.host, host_text(address), kSecretVariable));
}

Socket meeting_place(const MeetingPoint& point) {
  const std::vector<Address> named = resolved(point);
  check_secret(point, named.front());
  const std::vector<Address> places = places_to_listen(point, named);
  for (const Address& address : places)
    if (Socket listener = listening(address)) return listener;
  const int error = errno;
  if (error == EADDRNOTAVAIL)
    throw InputError(
        fmt::format("MASTER_ADDR={} ({}) is not an address of this machine, where rank 0 runs; it has {}: name one of "
                    "these, or start rank 0 there",
                    point.host, host_text(places.front()), own_addresses()));
  throw InputError(fmt::format(
      "rank 0 cannot wait at MASTER_ADDR={} MASTER_PORT={}: {}; choose another port, or the address of this host",
      point.host, point.port, system_words(error)));
}

std::vector<Socket> met_as_first(const Launch& launch, const MeetingPoint& point, double timeout_s, Deadline end) {
  const Socket listener = meeting_place(point);
  std::vector<Socket> peers(at(launch.size));
  std::vector<Address> addresses(at(launch.size));
  take_calls(listener.get(), {.launch = launch, .first = 1, .key = point.secret, .end = end, .timeout_s = timeout_s},
             peers, &addresses);
  const Roster roster{random_digest()};
  for (int r = 1; r < launch.size; ++r) {
    const int peer = peers[at(r)].get();
    if (!write_whole(peer, &roster, sizeof roster, end) ||
        !write_whole(peer, addresses.data(), addresses.size() * sizeof(Address), end))
      throw InputError(fmt::format("rank {} went away while the ranks met", r));
  }
  return peers;
}

// Rank 0 knows a rank of its own machine by a loopback address; from another machine it is where rank 0 is.
Address seen_from_here(const Address& by_rank_0, const Address& rank_0) {
  if (!is_loopback(by_rank_0) || is_loopback(rank_0)) return by_rank_0;
  return with_port(rank_0, port_of(by_rank_0));
}

// A rank that is called.
struct Callee {
  const Launch& launch;  // the caller's
  int rank = 0;
  std::string_view key;
};

// Why there is no connection.
struct Silence {
  std::string why;
  bool unreachable = false;  // as the system says at once, not as nobody has answered there
};

// The claim travels when the challenge is here; the other end's proof comes back.
std::string proven(int descriptor, const Callee& callee, int port, Deadline end) {
  Challenge challenge;
  if (!read_whole(descriptor, &challenge, sizeof challenge, end) || challenge.magic != kRankMagic)
    return "what listens there does not speak as a rank does";
  Claim claim{
      .caller = callee.launch.rank, .called = callee.rank, .world = callee.launch.size, .port = port, .random = {}};
  claim.random = random_digest();
  claim.proof = proof_of(callee.key, challenge, claim);
  Reply reply;
  if (!write_whole(descriptor, &claim, sizeof claim, end) || !read_whole(descriptor, &reply, sizeof reply, end))
    return "what listens there does not take this process for one of its run; all ranks need the same "
           "PIPEWRIGHT_SECRET";
  if (reply.magic != kRankMagic || !same(reply.proof, proof_of(callee.key, challenge, claim, reply)))
    return "what listens there did not prove that it belongs to this run";
  if (reply.refused != 0)
    throw InputError(fmt::format("rank {} refused this process as rank {} of {}: its message says why", callee.rank,
                                 callee.launch.rank, callee.launch.size));
  const char stays = 1;
  return write_whole(descriptor, &stays, sizeof stays, end) ? "" : "it has closed the connection";
}

// A connection on which both ends have proven that they are of this run, or why there is none after a second. `own`
// opens, knowing the connection, where the caller listens: its port.
template <class OwnPort>
Socket reached(const Address& address, const Callee& callee, const OwnPort& own, Deadline end, Silence& silence) {
  const Deadline soon = std::min<Deadline>(end, Clock::now() + kPatience);
  Socket socket = called(address, soon);
  if (!socket) {
    const int error = errno;
    // A last call whose time is over says less than the one before it.
    if (error != ETIMEDOUT || silence.why.empty()) silence = {system_words(error), error != ETIMEDOUT};
    return socket;
  }
  silence = {proven(socket.get(), callee, own(socket), soon)};
  return silence.why.empty() ? std::move(socket) : Socket();
}

// Somebody who is there and is not the rank has its time; a rank that starts is there at once.
void pause_behind(const Silence& silence) {
  std::this_thread::sleep_for(std::chrono::milliseconds(silence.unreachable ? 20 : 200));
}

class OtherRank {
 public:
  OtherRank(const Launch& launch, const MeetingPoint& point, double timeout_s, Deadline end)
      : launch_(launch), point_(point), timeout_s_(timeout_s), end_(end) {
    check_secret(point, places_.front());
  }

  std::vector<Socket> met() {
    join_first();
    const std::string key = run_key(point_.secret, read_roster().run);
    take_calls(listener_.get(),
               {.launch = launch_, .first = launch_.rank + 1, .key = key, .end = end_, .timeout_s = timeout_s_}, peers_,
               nullptr);
    for (int r = launch_.rank - 1; r > 0; --r)
      call(r, key);
    return std::move(peers_);
  }

 private:
  // The others find this rank where rank 0 sees it; beside rank 0, at any address of their machine.
  void listen(const Socket& first) {
    Address own = with_port(own_end(first.get()), 0);
    if (is_loopback(own) && is_everywhere(places_to_listen(point_, places_).front())) own = everywhere(own);
    listener_ = listening(own);
    if (!listener_)
      throw InputError(fmt::format("rank {} cannot listen for others: {}", launch_.rank, system_words(errno)));
  }

  void join_first() {
    const auto own_port = [&](const Socket& first) {
      listen(first);
      return port_of(own_end(listener_.get()));
    };
    Silence silence;
    for (;;) {
      for (const Address& address : places_) {
        peers_[0] = reached(address, {launch_, 0, point_.secret}, own_port, end_, silence);
        if (peers_[0]) return;
      }
      if (seconds_to(end_) <= 0) throw nobody(silence);
      pause_behind(silence);
    }
  }
  InputError nobody(const Silence& silence) const {
    return InputError(
        fmt::format("nobody answers as rank 0 at MASTER_ADDR={} MASTER_PORT={} after {} s ({}: {}){}; start rank 0 "
                    "there, or wait longer with --timeout",
                    point_.host, point_.port, timeout_s_, text_of(places_.front()), silence.why,
                    silence.unreachable && is_loopback(places_.front())
                        ? ", which is this machine itself; where rank 0 runs on another one, name that one's address"
                        : ""));
  }

  Roster read_roster() {
    Roster roster;
    const int first = peers_[0].get();
    if (!read_whole(first, &roster, sizeof roster, end_) ||
        !read_whole(first, addresses_.data(), addresses_.size() * sizeof(Address), end_))
      throw InputError(
          seconds_to(end_) <= 0
              ? fmt::format("rank 0 has waited for other ranks for {} s; its message says for whom", timeout_s_)
              : "rank 0 went away while the ranks met; its message says why");
    return roster;
  }

  void call(int rank, std::string_view key) {
    const Address address = seen_from_here(addresses_[at(rank)], other_end(peers_[0].get()));
    check_secret(point_, address);
    const auto no_port = [](const Socket&) { return 0; };
    for (Silence silence;;) {
      Socket peer = reached(address, {launch_, rank, key}, no_port, end_, silence);
      if (peer) return void(peers_[at(rank)] = std::move(peer));
      if (silence.unreachable || seconds_to(end_) <= 0)
        throw InputError(fmt::format(
            "rank {} cannot reach rank {} at {}: {}; the machines of all ranks must reach one another, at any port",
            launch_.rank, rank, text_of(address), silence.why));
      pause_behind(silence);
    }
  }

  const Launch& launch_;
  const MeetingPoint& point_;
  double timeout_s_;
  Deadline end_;
  std::vector<Address> places_ = resolved(point_);  // of rank 0
  std::vector<Socket> peers_ = std::vector<Socket>(at(launch_.size));
  std::vector<Address> addresses_ = std::vector<Address>(at(launch_.size));  // where they listen, by rank
  Socket listener_;
};

}  // namespace

std::vector<Address> places_to_listen(const MeetingPoint& point, const std::vector<Address>& named) {
  if (point.secret.empty() || means_loopback(point.host) || !is_loopback(named.front())) return named;
  std::vector<Address> places;
  for (const Address& address : named)
    if (std::ranges::none_of(places, [&](const Address& one) { return one.at.ss_family == address.at.ss_family; }))
      places.push_back(everywhere(address));
  return places;
}

std::vector<Socket> met(const Launch& launch, const MeetingPoint& point, double timeout_s) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  if (launch.size == 1) return std::vector<Socket>(1);
  return launch.rank == 0 ? met_as_first(launch, point, timeout_s, end)
                          : OtherRank(launch, point, timeout_s, end).met();
}

}  // namespace pipewright::runtime
