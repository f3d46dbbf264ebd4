// Sockets and the addresses they are at.
//
// Tests: tests/runtime/meeting_test.cpp
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "runtime/launch.hpp"

namespace pipewright::runtime {

using Deadline = std::chrono::steady_clock::time_point;

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
std::string text_of(const Address& address);  // "10.0.0.7:29500", "[fe80::1]:29500"
std::string host_text(const Address& address);
std::string own_addresses();  // of this machine, others than loopback: "10.0.0.7, 172.17.0.2"
int port_of(const Address& address);
Address with_port(Address address, int port);
bool is_loopback(const Address& address);
Address everywhere(const Address& like);  // all addresses of this machine, at its port
bool is_everywhere(const Address& address);
Address own_end(int descriptor);
Address other_end(int descriptor);

// It does not block in accept. No socket: errno says why.
Socket listening(const Address& address);
// No socket: nobody answers there until `end`; errno says why.
Socket called(const Address& address, Deadline end);
// A call to a port that nobody listens at may, by chance, leave from that very port and then reach itself.
bool is_connected_to_itself(int descriptor);
void without_delay(int descriptor);

double seconds_to(Deadline end);
// Waits until the descriptor is ready. False: the time is over.
bool ready(int descriptor, short what, Deadline end);
// False: the time is over, or the other end is gone.
bool read_whole(int descriptor, void* into, std::size_t bytes, Deadline end);
bool write_whole(int descriptor, const void* from, std::size_t bytes, Deadline end);
// Whether the other end has not closed the connection.
bool is_open(int descriptor);

}  // namespace pipewright::runtime
