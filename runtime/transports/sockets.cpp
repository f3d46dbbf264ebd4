#include "runtime/transports/sockets.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "core/check.hpp"
#include "core/plain_words.hpp"

namespace pipewright::runtime {
namespace {

const sockaddr_in& v4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.at);
}
const sockaddr_in6& v6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.at);
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

}  // namespace

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
  std::ranges::stable_sort(all, [](const Address& a, const Address& b) { return a.at.ss_family < b.at.ss_family; });
  if (!std::ranges::all_of(all, is_loopback)) std::erase_if(all, is_loopback);
  return all;
}

std::string text_of(const Address& address) {
  const std::string host = host_text(address);
  return fmt::format("{}:{}", address.at.ss_family == AF_INET6 ? "[" + host + "]" : host, port_of(address));
}

std::string host_text(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const from = address.at.ss_family == AF_INET6 ? static_cast<const void*>(&v6(address).sin6_addr)
                                                            : static_cast<const void*>(&v4(address).sin_addr);
  return ::inet_ntop(address.at.ss_family, from, text.data(), text.size()) != nullptr ? text.data() : "?";
}

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

int port_of(const Address& address) {
  return ntohs(address.at.ss_family == AF_INET6 ? v6(address).sin6_port : v4(address).sin_port);
}
Address with_port(Address address, int port) {
  (address.at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address.at).sin6_port
                                    : reinterpret_cast<sockaddr_in&>(address.at).sin_port) =
      htons(static_cast<std::uint16_t>(port));
  return address;
}

bool is_loopback(const Address& address) {
  return address.at.ss_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6(address).sin6_addr)
                                          : (ntohl(v4(address).sin_addr.s_addr) >> 24) == 127;
}

Address everywhere(const Address& like) {
  Address any;
  any.length = like.length, any.at.ss_family = like.at.ss_family;  // zeros are INADDR_ANY and in6addr_any
  return with_port(any, port_of(like));
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

Socket listening(const Address& address) {
  Socket socket(::socket(address.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.at), address.length) != 0 ||
      ::listen(socket.get(), 128) != 0)
    return Socket();
  return socket;
}

Socket called(const Address& address, Deadline end) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(end - std::chrono::steady_clock::now());
  if (left.count() <= 0) {
    errno = ETIMEDOUT;
    return Socket();
  }
  Socket socket(::socket(address.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{static_cast<time_t>(left.count() / 1'000'000),
                      static_cast<suseconds_t>(left.count() % 1'000'000)};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // of a call to a host that says nothing
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.at), address.length) != 0) {
    if (errno == EINPROGRESS) errno = ETIMEDOUT;
    return Socket();
  }
  if (is_connected_to_itself(socket.get())) {
    const linger at_once{1, 0};  // the port must be free for rank 0
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    errno = ECONNREFUSED;
    return Socket();
  }
  without_delay(socket.get());
  return socket;
}

bool is_connected_to_itself(int descriptor) {
  return text_of(own_end(descriptor)) == text_of(other_end(descriptor));
}

void without_delay(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

double seconds_to(Deadline end) {
  return std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
}

bool ready(int descriptor, short what, Deadline end) {
  for (;;) {
    const double seconds = seconds_to(end);
    if (seconds <= 0) return false;
    pollfd one{descriptor, what, 0};
    const int got = ::poll(&one, 1, static_cast<int>(std::min(seconds, 1.0) * 1000) + 1);
    if (got > 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

bool read_whole(int descriptor, void* into, std::size_t bytes, Deadline end) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    if (!ready(descriptor, POLLIN, end)) return false;
    const ssize_t got = ::recv(descriptor, at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    at += got, bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
bool write_whole(int descriptor, const void* from, std::size_t bytes, Deadline end) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    if (!ready(descriptor, POLLOUT, end)) return false;
    const ssize_t put = ::send(descriptor, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (put <= 0) return false;
    at += put, bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

bool is_open(int descriptor) {
  char next = 0;
  const ssize_t got = ::recv(descriptor, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace pipewright::runtime
