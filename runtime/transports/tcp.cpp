// Sockets between all ranks; meeting.hpp tells how they find one another.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/plain_words.hpp"
#include "runtime/transport.hpp"
#include "runtime/transports/meeting.hpp"
#include "runtime/wire.hpp"

namespace pipewright::runtime {
namespace {

using Clock = std::chrono::steady_clock;

class TcpWire : public Wire {
 public:
  TcpWire(const Launch& launch, std::vector<Socket> sockets, double timeout_s)
      : launch_(launch), timeout_s_(timeout_s), patience_s_(timeout_s), peers_(sockets.size()) {
    for (std::size_t r = 0; r < sockets.size(); ++r)
      peers_[r].socket = std::move(sockets[r]);
  }
  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.size; }

  void send(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) override {
    Peer& peer = peers_[at(to)];
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
        const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
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
        list[first].iov_len -= at(put);
      }
    }
  }

  void calm() noexcept override { patience_s_ = timeout_s_; }
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
    std::size_t of_header = 0;  // bytes that are there
    std::int64_t of_body = 0;
  };

  // Everything that is there, or until the socket has no more.
  void read_from(int rank, FrameReader& reader) {
    Peer& peer = peers_[at(rank)];
    try {
      for (;;) {
        const bool in_header = peer.of_header < sizeof peer.header;
        const std::span<std::byte> into =
            in_header ? std::as_writable_bytes(std::span(&peer.header, 1)).subspan(peer.of_header)
            : peer.of_body < peer.header.bytes ? reader.room(peer.header, peer.of_body)
                                               : std::span<std::byte>{};
        const ssize_t got = into.empty() ? 0 : ::recv(peer.socket.get(), into.data(), into.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got < 0 || (got == 0 && !into.empty()))
          throw std::runtime_error(got == 0 ? "its process has ended" : system_words(errno));
        if (in_header) {
          peer.of_header += at(got);
          if (peer.of_header < sizeof peer.header) continue;
          if (peer.header.from != rank) throw std::runtime_error("it sent what is not a message of ours");
          reader.begin(peer.header);
          peer.of_body = 0;
        } else {
          peer.of_body += got;
        }
        if (peer.of_body < peer.header.bytes) continue;
        peer.of_header = 0;
        reader.end(peer.header);
      }
    } catch (const std::exception& error) {
      peer.ended = true;
      reader.gone(rank, plain_words(error));
    }
  }

  Launch launch_;
  double timeout_s_;
  std::atomic<double> patience_s_;
  std::vector<Peer> peers_;
};

}  // namespace

std::unique_ptr<Wire> tcp_wire(const Launch& launch, const MeetingPoint& point, double timeout_s) {
  return std::make_unique<TcpWire>(launch, met(launch, point, timeout_s), timeout_s);
}

}  // namespace pipewright::runtime
