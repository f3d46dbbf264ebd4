#include "runtime/transports/meeting.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "core/check.hpp"
#include "core/plain_words.hpp"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<char, 8> kMagic = {'p', 'w', 'r', 'a', 'n', 'k', 's', '1'};

struct Hello {
  std::array<char, 8> magic = kMagic;
  std::int32_t rank = 0, size = 0;
  std::int32_t port = 0;  // where this rank listens for others
  std::int32_t refused = 0;
};
double left(Clock::time_point end) {
  return std::chrono::duration<double>(end - Clock::now()).count();
}

bool read_whole(int descriptor, void* into, std::size_t bytes, Clock::time_point end) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    if (!ready(descriptor, POLLIN, end)) return false;
    const ssize_t got = ::recv(descriptor, at, bytes, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    at += got, bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
bool write_whole(int descriptor, const void* from, std::size_t bytes, Clock::time_point end) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    if (!ready(descriptor, POLLOUT, end)) return false;
    const ssize_t put = ::send(descriptor, at, bytes, MSG_NOSIGNAL);
    if (put < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (put <= 0) return false;
    at += put, bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

void without_delay(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int port_of(const sockaddr_storage& at) {
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(at).sin_port);
}
void set_port(sockaddr_storage& at, int port) {
  (at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                            : reinterpret_cast<sockaddr_in&>(at).sin_port) = htons(static_cast<std::uint16_t>(port));
}

const sockaddr_in& v4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.at);
}
const sockaddr_in6& v6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.at);
}

bool is_loopback(const Address& address) {
  return address.at.ss_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6(address).sin6_addr)
                                          : (ntohl(v4(address).sin_addr.s_addr) >> 24) == 127;
}

std::string host_text(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const from = address.at.ss_family == AF_INET6 ? static_cast<const void*>(&v6(address).sin6_addr)
                                                            : static_cast<const void*>(&v4(address).sin_addr);
  return ::inet_ntop(address.at.ss_family, from, text.data(), text.size()) != nullptr ? text.data() : "?";
}

// This machine alone is meant.
bool means_loopback(const std::string& host) {
  std::array<std::byte, sizeof(in6_addr)> binary{};
  return host.find("localhost") != std::string::npos || host == "ip6-loopback" ||
         ::inet_pton(AF_INET, host.c_str(), binary.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), binary.data()) == 1;
}

Address everywhere(const Address& like) {
  Address any;
  any.length = like.length, any.at.ss_family = like.at.ss_family;  // zeros are INADDR_ANY and in6addr_any
  set_port(any.at, port_of(like.at));
  return any;
}
bool is_everywhere(const Address& address) {
  return address.at.ss_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&v6(address).sin6_addr)
                                          : v4(address).sin_addr.s_addr == INADDR_ANY;
}

Address own_end(int descriptor) {
  Address own;
  own.length = sizeof own.at;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own.at), &own.length);
  return own;
}
Address other_end(int descriptor) {
  Address other;
  other.length = sizeof other.at;
  ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other.at), &other.length);
  return other;
}

// Of this machine, others than loopback: "10.0.0.7, 172.17.0.2".
std::string own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "none";
  std::string text;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    Address address;
    std::memcpy(&address.at, one->ifa_addr, sizeof(sockaddr_in));
    if (!is_loopback(address)) text += (text.empty() ? "" : ", ") + host_text(address);
  }
  ::freeifaddrs(list);
  return text.empty() ? "none" : text;
}

// Why a name has no address.
std::string lookup_words(int error) {
  switch (error) {
    case EAI_NONAME: return "no host of this name is known here";
    case EAI_AGAIN:
    case EAI_FAIL: return "the name server does not answer";
    case EAI_SYSTEM: return system_words(errno);
    default: return "the name has no address here";
  }
}

Socket listening(const Address& address) {
  Socket socket(::socket(address.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.at), address.length) != 0 ||
      ::listen(socket.get(), 128) != 0)
    return Socket();
  return socket;
}

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

// Takes calls until `peers` has a socket for every rank from `first` on. `addresses`: where those listen.
void take_calls(int listener, const Launch& launch, int first, std::vector<Socket>& peers,
                std::vector<Address>* addresses, Clock::time_point end, double timeout_s) {
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int r = first; r < launch.size; ++r)
      if (r != launch.rank && !peers[static_cast<std::size_t>(r)]) ranks.push_back(r);
    return ranks;
  };
  while (!missing().empty()) {
    if (!ready(listener, POLLIN, end))
      throw InputError(
          fmt::format("{} did not come within {} s: start {} processes with the same MASTER_ADDR and "
                      "MASTER_PORT, or wait longer with --timeout (rank {} waits at {})",
                      list_of(missing()), timeout_s, launch.size, launch.rank, waiting_at(listener)));
    Address from;
    from.length = sizeof from.at;
    Socket peer(::accept4(listener, reinterpret_cast<sockaddr*>(&from.at), &from.length, SOCK_CLOEXEC));
    if (!peer) continue;
    Hello hello;
    // Somebody else's call says nothing we know: it is dropped.
    if (!read_whole(peer.get(), &hello, sizeof hello, std::min(end, Clock::now() + std::chrono::seconds(5))) ||
        hello.magic != kMagic)
      continue;
    const auto refuse = [&](const std::string& why) {
      hello.refused = 1;
      write_whole(peer.get(), &hello, sizeof hello, Clock::now() + std::chrono::seconds(1));
      throw InputError(why);
    };
    if (hello.size != launch.size)
      refuse(fmt::format("rank {} counts {} ranks, rank {} counts {}; start all with the same WORLD_SIZE", hello.rank,
                         hello.size, launch.rank, launch.size));
    if (hello.rank < first || hello.rank >= launch.size || peers[static_cast<std::size_t>(hello.rank)])
      refuse(fmt::format("two processes say that they are rank {}; give every process a RANK of its own", hello.rank));
    without_delay(peer.get());
    if (addresses != nullptr) {
      set_port(from.at, hello.port);
      (*addresses)[static_cast<std::size_t>(hello.rank)] = from;
    }
    peers[static_cast<std::size_t>(hello.rank)] = std::move(peer);
  }
}

Socket meeting_place(const MeetingPoint& point) {
  const std::vector<Address> places = places_to_listen(point.host, resolved(point));
  for (const Address& address : places)
    if (Socket listener = listening(address)) return listener;
  const int error = errno;
  if (error == EADDRNOTAVAIL)
    throw InputError(
        fmt::format("MASTER_ADDR={} ({}) is no address of this machine, where rank 0 runs; it has {}: name one "
                    "of these, or start rank 0 there",
                    point.host, host_text(places.front()), own_addresses()));
  throw InputError(
      fmt::format("rank 0 cannot wait at MASTER_ADDR={} MASTER_PORT={}: {}; choose another port, or the "
                  "address of this host",
                  point.host, point.port, system_words(error)));
}

std::vector<Socket> met_as_first(const Launch& launch, const MeetingPoint& point, double timeout_s,
                                 Clock::time_point end) {
  const Socket listener = meeting_place(point);
  std::vector<Socket> peers(static_cast<std::size_t>(launch.size));
  std::vector<Address> addresses(static_cast<std::size_t>(launch.size));
  take_calls(listener.get(), launch, 1, peers, &addresses, end, timeout_s);
  const Hello welcome{.rank = 0, .size = launch.size};
  for (int r = 1; r < launch.size; ++r) {
    const int peer = peers[static_cast<std::size_t>(r)].get();
    if (!write_whole(peer, &welcome, sizeof welcome, end) ||
        !write_whole(peer, addresses.data(), addresses.size() * sizeof(Address), end))
      throw InputError(fmt::format("rank {} went away while the ranks met", r));
  }
  return peers;
}

// Rank 0 knows a rank of its own machine by a loopback address; from another machine it is where rank 0 is.
Address seen_from_here(const Address& by_rank_0, const Address& rank_0) {
  if (!is_loopback(by_rank_0) || is_loopback(rank_0)) return by_rank_0;
  Address address = rank_0;
  set_port(address.at, port_of(by_rank_0.at));
  return address;
}

std::vector<Socket> met_as_other(const Launch& launch, const MeetingPoint& point, double timeout_s,
                                 Clock::time_point end) {
  std::vector<Socket> peers(static_cast<std::size_t>(launch.size));
  const std::vector<Address> places = resolved(point);
  int error = 0;
  const auto late = [&] {
    return InputError(
        fmt::format("nobody answers as rank 0 at MASTER_ADDR={} MASTER_PORT={} after {} s ({}: {}){}; start rank 0 "
                    "there, or wait longer with --timeout",
                    point.host, point.port, timeout_s, text_of(places.front()),
                    error == 0 ? "whoever listens there says nothing" : system_words(error),
                    is_loopback(places.front()) ? ", which is this machine itself; where rank 0 runs on another one, "
                                                  "name that one's address"
                                                : ""));
  };
  Socket first;
  while (!first) {
    for (const Address& address : places)
      if (!first) first = called(address), error = first ? 0 : errno;
    if (first) break;
    if (left(end) <= 0) throw late();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const Address rank_0 = other_end(first.get());
  // The others find this rank where rank 0 sees it; beside rank 0, at any address of their machine.
  Address own = own_end(first.get());
  set_port(own.at, 0);
  if (is_loopback(own) && is_everywhere(places_to_listen(point.host, places).front())) own = everywhere(own);
  const Socket listener = listening(own);
  if (!listener)
    throw InputError(fmt::format("rank {} cannot listen for others: {}", launch.rank, system_words(errno)));
  own = own_end(listener.get());
  Hello hello{.rank = launch.rank, .size = launch.size, .port = port_of(own.at)};
  std::vector<Address> addresses(static_cast<std::size_t>(launch.size));
  if (!write_whole(first.get(), &hello, sizeof hello, end) || !read_whole(first.get(), &hello, sizeof hello, end) ||
      hello.magic != kMagic) {
    if (left(end) <= 0) throw late();
    throw InputError(fmt::format("rank 0 at MASTER_ADDR={} MASTER_PORT={} has ended, or another program listens there",
                                 point.host, point.port));
  }
  if (hello.refused != 0)
    throw InputError(
        fmt::format("rank 0 refused this process as rank {} of {}: its message says why", launch.rank, launch.size));
  if (!read_whole(first.get(), addresses.data(), addresses.size() * sizeof(Address), end))
    throw InputError("rank 0 went away while the ranks met");
  peers[0] = std::move(first);
  for (int r = 1; r < launch.rank; ++r) {
    const Address address = seen_from_here(addresses[static_cast<std::size_t>(r)], rank_0);
    Socket peer = called(address);
    const Hello mine{.rank = launch.rank, .size = launch.size};
    if (!peer || !write_whole(peer.get(), &mine, sizeof mine, end))
      throw InputError(
          fmt::format("rank {} cannot reach rank {} at {}: {}; the machines of all ranks must reach one "
                      "another, at any port",
                      launch.rank, r, text_of(address), system_words(errno)));
    peers[static_cast<std::size_t>(r)] = std::move(peer);
  }
  take_calls(listener.get(), launch, launch.rank + 1, peers, nullptr, end, timeout_s);
  return peers;
}

}  // namespace

std::string text_of(const Address& address) {
  const std::string host = host_text(address);
  return fmt::format("{}:{}", address.at.ss_family == AF_INET6 ? "[" + host + "]" : host, port_of(address.at));
}

std::vector<Address> resolved(const MeetingPoint& point) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(point.host.c_str(), std::to_string(point.port).c_str(), &hints, &list);
      error != 0)
    throw InputError(fmt::format("MASTER_ADDR=\"{}\": {}; name the host of rank 0", point.host, lookup_words(error)));
  std::vector<Address> all;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Address address;
    std::memcpy(&address.at, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    all.push_back(address);
  }
  ::freeaddrinfo(list);
  // Both sides take IPv4 first, so that a host with both finds itself.
  std::stable_sort(all.begin(), all.end(),
                   [](const Address& a, const Address& b) { return a.at.ss_family < b.at.ss_family; });
  if (!std::all_of(all.begin(), all.end(), is_loopback)) std::erase_if(all, is_loopback);
  return all;
}

std::vector<Address> places_to_listen(const std::string& host, const std::vector<Address>& named) {
  if (means_loopback(host) || !is_loopback(named.front())) return named;
  std::vector<Address> places;
  for (const Address& address : named)
    if (std::none_of(places.begin(), places.end(),
                     [&](const Address& one) { return one.at.ss_family == address.at.ss_family; }))
      places.push_back(everywhere(address));
  return places;
}

bool is_connected_to_itself(int descriptor) {
  return text_of(own_end(descriptor)) == text_of(other_end(descriptor));
}

Socket called(const Address& address) {
  Socket socket(::socket(address.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval seconds{5, 0};  // of a call to a host that says nothing
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &seconds, sizeof seconds);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.at), address.length) != 0) return Socket();
  if (is_connected_to_itself(socket.get())) {
    const linger at_once{1, 0};  // the port must be free for rank 0
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    errno = ECONNREFUSED;
    return Socket();
  }
  without_delay(socket.get());
  return socket;
}

bool ready(int descriptor, short what, Clock::time_point end) {
  for (;;) {
    const double seconds = left(end);
    if (seconds <= 0) return false;
    pollfd one{descriptor, what, 0};
    const int got = ::poll(&one, 1, static_cast<int>(std::min(seconds, 1.0) * 1000) + 1);
    if (got > 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

std::vector<Socket> met(const Launch& launch, const MeetingPoint& point, double timeout_s) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  return launch.rank == 0 ? met_as_first(launch, point, timeout_s, end) : met_as_other(launch, point, timeout_s, end);
}

}  // namespace pipewright
