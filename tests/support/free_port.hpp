// A port of this machine that nobody listens at, chosen by the system.
#pragma once

#include <stdexcept>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pipewright::tests {

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&at), length) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &length) != 0)
    throw std::runtime_error("no port");
  ::close(socket);
  return ntohs(at.sin_port);
}

}  // namespace pipewright::tests
