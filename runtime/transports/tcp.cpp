// Sockets between all ranks.
//
// Rank 0 listens at the meeting point. Every other rank opens a socket of its own that listens, says hello to rank 0
// with its number, the world's size and that port, and gets the list of all addresses; then the higher of two ranks
// calls the lower one. The connection with rank 0 stays.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/check.hpp"
#include "runtime/transport.hpp"
#include "runtime/wire.hpp"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

constexpr std::array<char, 8> kMagic = {'p', 'w', 'r', 'a', 'n', 'k', 's', '1'};

struct Hello {
  std::array<char, 8> magic = kMagic;
  std::int32_t rank = 0, size = 0;
  std::int32_t port = 0;  // where this rank listens for others
  std::int32_t refused = 0;
};
struct Address {
  sockaddr_storage at{};
  socklen_t length = 0;
};

double left(Clock::time_point end) {
  return std::chrono::duration<double>(end - Clock::now()).count();
}

// Waits until the socket is ready. False: the time is over.
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

std::vector<Address> resolved(const MeetingPoint& point) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(point.host.c_str(), std::to_string(point.port).c_str(), &hints, &list);
      error != 0)
    throw InputError(fmt::format("MASTER_ADDR=\"{}\": {}; name the host of rank 0", point.host, ::gai_strerror(error)));
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
  return all;
}

int port_of(const sockaddr_storage& at) {
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(at).sin_port);
}
void set_port(sockaddr_storage& at, int port) {
  (at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                            : reinterpret_cast<sockaddr_in&>(at).sin_port) = htons(static_cast<std::uint16_t>(port));
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

Socket called(const Address& address) {
  Socket socket(::socket(address.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval seconds{5, 0};  // of a call to a host that says nothing
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &seconds, sizeof seconds);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.at), address.length) != 0) return Socket();
  without_delay(socket.get());
  return socket;
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
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
                      "MASTER_PORT, or wait longer with --timeout",
                      list_of(missing()), timeout_s, launch.size));
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

std::vector<Socket> met_as_first(const Launch& launch, const MeetingPoint& point, double timeout_s,
                                 Clock::time_point end) {
  Socket listener;
  for (const Address& address : resolved(point))
    if (!listener) listener = listening(address);
  if (!listener)
    throw InputError(
        fmt::format("rank 0 cannot wait at MASTER_ADDR={} MASTER_PORT={}: {}; choose another port, or the "
                    "address of this host",
                    point.host, point.port, std::strerror(errno)));
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

std::vector<Socket> met(const Launch& launch, const MeetingPoint& point, double timeout_s, Clock::time_point end) {
  const auto late = [&] {
    return InputError(
        fmt::format("nobody answers as rank 0 at MASTER_ADDR={} MASTER_PORT={} after {} s; start rank 0 "
                    "there, or wait longer with --timeout",
                    point.host, point.port, timeout_s));
  };
  std::vector<Socket> peers(static_cast<std::size_t>(launch.size));
  const std::vector<Address> places = resolved(point);
  Socket first;
  while (!first) {
    for (const Address& address : places)
      if (!first) first = called(address);
    if (first) break;
    if (left(end) <= 0) throw late();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // The others find this rank where rank 0 sees it.
  Address own;
  own.length = sizeof own.at;
  ::getsockname(first.get(), reinterpret_cast<sockaddr*>(&own.at), &own.length);
  set_port(own.at, 0);
  const Socket listener = listening(own);
  if (!listener)
    throw InputError(fmt::format("rank {} cannot listen for others: {}", launch.rank, std::strerror(errno)));
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own.at), &own.length);
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
    Socket peer = called(addresses[static_cast<std::size_t>(r)]);
    const Hello mine{.rank = launch.rank, .size = launch.size};
    if (!peer || !write_whole(peer.get(), &mine, sizeof mine, end))
      throw InputError(fmt::format("rank {} cannot reach rank {}: {}", launch.rank, r, std::strerror(errno)));
    peers[static_cast<std::size_t>(r)] = std::move(peer);
  }
  take_calls(listener.get(), launch, launch.rank + 1, peers, nullptr, end, timeout_s);
  return peers;
}

class TcpWire : public Wire {
 public:
  TcpWire(const Launch& launch, std::vector<Socket> sockets, double timeout_s)
      : launch_(launch), patience_s_(timeout_s), peers_(sockets.size()) {
    for (std::size_t r = 0; r < sockets.size(); ++r)
      peers_[r].socket = std::move(sockets[r]);
  }
  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.size; }

  void send(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) override {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    const std::lock_guard lock(peer.sending);
    if (peer.broken) return;
    std::vector<iovec> list = {{const_cast<FrameHeader*>(&header), sizeof header}};
    for (const auto part : parts)
      if (!part.empty()) list.push_back({const_cast<std::byte*>(part.data()), part.size()});
    std::size_t first = 0;
    auto begin = Clock::now();  // of the present silence
    while (first < list.size()) {
      msghdr message{};
      message.msg_iov = &list[first];
      message.msg_iovlen = std::min<std::size_t>(list.size() - first, 64);
      ssize_t put = ::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        const double waited = -left(begin);
        if (waited < patience_s_.load()) {
          ready(peer.socket.get(), POLLOUT, Clock::now() + std::chrono::milliseconds(50));
          continue;
        }
        peer.broken = true;  // half a message lies there
        throw PeerSilent(fmt::format("worker {} has read nothing for {:.3g} s", to, waited));
      }
      if (put <= 0) {
        peer.broken = true;  // the receiving side tells
        return;
      }
      begin = Clock::now();
      while (first < list.size() && put >= static_cast<ssize_t>(list[first].iov_len))
        put -= static_cast<ssize_t>(list[first++].iov_len);
      if (put > 0) {
        list[first].iov_base = static_cast<char*>(list[first].iov_base) + put;
        list[first].iov_len -= static_cast<std::size_t>(put);
      }
    }
  }

  void hasten() noexcept override { patience_s_ = std::min(patience_s_.load(), 1.0); }

  void receive(FrameReader& reader, bool) override {
    std::vector<pollfd> list;
    std::vector<std::size_t> of;
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (peers_[r].socket && !peers_[r].ended) list.push_back({peers_[r].socket.get(), POLLIN, 0}), of.push_back(r);
    if (::poll(list.data(), list.size(), 20) <= 0) return;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].revents != 0) read_from(static_cast<int>(of[i]), reader);
  }

  void close(bool, int) noexcept override {
    for (Peer& peer : peers_)
      if (peer.socket) ::shutdown(peer.socket.get(), SHUT_RDWR);
  }

 private:
  struct Peer {
    Socket socket;
    std::mutex sending;
    bool broken = false;  // sending failed
    bool ended = false;   // receiving did
    FrameHeader header;
    std::size_t of_header = 0, of_body = 0;  // bytes that are there
    std::byte* body = nullptr;
  };

  // Everything that is there, or until the socket has no more.
  void read_from(int rank, FrameReader& reader) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    try {
      for (;;) {
        const bool in_header = peer.of_header < sizeof peer.header;
        std::byte* const into =
            in_header ? reinterpret_cast<std::byte*>(&peer.header) + peer.of_header : peer.body + peer.of_body;
        const std::size_t want = in_header ? sizeof peer.header - peer.of_header
                                           : static_cast<std::size_t>(peer.header.bytes) - peer.of_body;
        const ssize_t got = want == 0 ? 0 : ::recv(peer.socket.get(), into, want, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got < 0 || (got == 0 && want > 0))
          throw std::runtime_error(got == 0 ? "its process has ended" : std::strerror(errno));
        if (in_header) {
          peer.of_header += static_cast<std::size_t>(got);
          if (peer.of_header < sizeof peer.header) continue;
          if (peer.header.from != rank) throw std::runtime_error("it sent what is no message of ours");
          peer.body = reader.begin(peer.header);
          peer.of_body = 0;
        } else {
          peer.of_body += static_cast<std::size_t>(got);
        }
        if (peer.of_body < static_cast<std::size_t>(peer.header.bytes)) continue;
        peer.of_header = 0;
        reader.end(peer.header);
      }
    } catch (const std::exception& error) {
      peer.ended = true;
      reader.gone(rank, error.what());
    }
  }

  Launch launch_;
  std::atomic<double> patience_s_;
  std::vector<Peer> peers_;
};

}  // namespace

std::unique_ptr<Wire> tcp_wire(const Launch& launch, const MeetingPoint& point, double timeout_s) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  return std::make_unique<TcpWire>(
      launch, launch.rank == 0 ? met_as_first(launch, point, timeout_s, end) : met(launch, point, timeout_s, end),
      timeout_s);
}

}  // namespace pipewright
