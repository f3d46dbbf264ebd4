// How the processes of a tcp run find one another.
//
// Rank 0 listens at the meeting point. Every other rank opens a socket of its own that listens, says hello to rank 0
// with its number, the world's size and that port, and gets the list of all addresses; then the higher of two ranks
// calls the lower one. The connection with rank 0 stays.
//
// Where rank 0 listens: at the address that MASTER_ADDR names. A name that this machine knows as itself only (Debian
// writes "127.0.1.1 HOSTNAME" into /etc/hosts) is one that other machines know by another address, so then it listens
// at all of its addresses, as torch's store always does (torch/csrc/distributed/c10d/socket.cpp, SocketListenOp). With
// localhost, or a literal address 127.*, it listens to this machine alone.
//
// Tests: tests/runtime/meeting_test.cpp
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "runtime/launch.hpp"

namespace pipewright {

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

struct Address {
  sockaddr_storage at{};
  socklen_t length = 0;
};

// What a name stands for: loopback addresses only where there is no other. Throws InputError.
std::vector<Address> resolved(const MeetingPoint& point);
// Where rank 0 listens, of the addresses of the name.
std::vector<Address> places_to_listen(const std::string& host, const std::vector<Address>& named);
// "10.0.0.7:29500", "[fe80::1]:29500".
std::string text_of(const Address& address);

// A call to a port that nobody listens at may, by chance, leave from that very port and then reach itself.
bool is_connected_to_itself(int descriptor);
// No socket: nobody answers there.
Socket called(const Address& address);

// Waits until the descriptor is ready. False: the time is over.
bool ready(int descriptor, short what, std::chrono::steady_clock::time_point end);

// A socket to every other rank, by rank. Throws InputError: who is missing after the timeout, who came twice, who
// counts differently.
std::vector<Socket> met(const Launch& launch, const MeetingPoint& point, double timeout_s);

}  // namespace pipewright
