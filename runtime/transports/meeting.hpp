// How the processes of a tcp run find one another.
//
// Rank 0 listens at the meeting point. Every other rank opens a socket of its own that listens, calls rank 0 and tells it
// that port, and gets the list of all addresses. It then waits for the calls of the ranks above it and calls those below
// it, the nearest first: whoever is called is waiting, as it calls nobody before all above it have come. The connection
// with rank 0 stays. On every connection both ends prove that they are of this run (proof.hpp) before they believe
// anything; strangers are dropped (reception.hpp), and a stranger in a rank's place is called again until the rank is
// there.
//
// Where rank 0 listens: at the address that MASTER_ADDR names. A name that this machine knows as itself only (Debian
// writes "127.0.1.1 HOSTNAME" into /etc/hosts) is one that other machines know by another address, so then it listens
// at all of its addresses, as torch's store always does (torch/csrc/distributed/c10d/socket.cpp, SocketListenOp). With
// localhost, or a literal address 127.*, it listens to this machine alone.
//
// Without a secret (launch.hpp) nobody listens or calls but at loopback addresses.
//
// Tests: tests/runtime/meeting_test.cpp, tests/runtime/strangers_test.cpp
#pragma once

#include <vector>

#include "runtime/launch.hpp"
#include "runtime/transports/sockets.hpp"

namespace pipewright::runtime {

// Where rank 0 listens, of the addresses of the name.
std::vector<Address> places_to_listen(const MeetingPoint& point, const std::vector<Address>& named);

// A socket to every other rank, by rank. Throws InputError: who is missing after the timeout, who came twice, who
// counts differently, and where other machines could call and there is no secret.
std::vector<Socket> met(const Launch& launch, const MeetingPoint& point, double timeout_s);

}  // namespace pipewright::runtime
