// Where the ranks of a tcp run meet. What a name stands for is the machine's business, so lists of addresses are made
// by hand here.
#include "runtime/transports/meeting.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.hpp"
#include "tests/support/children.hpp"
#include "tests/support/free_port.hpp"

using namespace pipewright::tests;

namespace {

const std::string kSecret = "known to these ranks alone";

Address address(const char* host, int port = 29500) {
  Address made;
  auto& v4 = reinterpret_cast<sockaddr_in&>(made.at);
  v4.sin_family = AF_INET, v4.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(::inet_pton(AF_INET, host, &v4.sin_addr) == 1);
  made.length = sizeof v4;
  return made;
}
std::string listens(const std::string& host, const std::vector<Address>& named, const std::string& secret = kSecret) {
  std::string text;
  for (const Address& one : places_to_listen({host, 29500, secret}, named))
    text += (text.empty() ? "" : " ") + text_of(one);
  return text;
}

}  // namespace

TEST_CASE("A name that only this machine takes for loopback is one that other machines call: listen everywhere") {
  CHECK(listens("box", {address("127.0.1.1")}) == "0.0.0.0:29500");  // Debian's /etc/hosts
  CHECK(listens("box", {address("127.0.1.1"), address("127.0.0.1")}) == "0.0.0.0:29500");
  CHECK(listens("box", {address("10.0.0.7")}) == "10.0.0.7:29500");
  CHECK(listens("localhost", {address("127.0.0.1")}) == "127.0.0.1:29500");
  CHECK(listens("127.0.0.1", {address("127.0.0.1")}) == "127.0.0.1:29500");
}

TEST_CASE("Without a secret nobody listens but at loopback addresses, nor calls another one") {
  CHECK(listens("box", {address("127.0.1.1")}, "") == "127.0.1.1:29500");
  for (const int rank : {0, 1})
    CHECK_THROWS_WITH_AS(met({rank, 2, "the test"}, {"192.0.2.1", 29500}, 60),
                         doctest::Contains("(192.0.2.1) is an address that other machines can reach"), InputError);
  CHECK(met({0, 1, "the test"}, {"192.0.2.1", 29500}, 60).size() == 1);  // alone it meets nobody
}

TEST_CASE("An address of another machine is not a place for rank 0: it says which ones there are") {
  // 192.0.2.1 is for documentation and nobody's [RFC 5737]
  CHECK_THROWS_WITH_AS(met({0, 2, "the test"}, {"192.0.2.1", 29500, kSecret}, 0.2),
                       doctest::Contains("MASTER_ADDR=192.0.2.1 (192.0.2.1) is not an address of this machine, where "
                                         "rank 0 runs; it has "),
                       InputError);
}

TEST_CASE("Who waits in vain is told where rank 0 listens, or was looked for") {
  const int port = free_port();
  const std::string place = "127.0.0.1:" + std::to_string(port);
  CHECK_THROWS_WITH_AS(met({0, 2, "the test"}, {"localhost", port}, 0.2),
                       doctest::Contains(("rank 0 waits at " + place + ": only processes of this machine").c_str()),
                       InputError);
  CHECK_THROWS_WITH_AS(met({1, 2, "the test"}, {"localhost", port}, 0.2),
                       doctest::Contains((place + ": Connection refused), which is this machine itself").c_str()),
                       InputError);
}

TEST_CASE("A socket that has reached itself is told from one that has reached another") {
  const Address here = address("127.0.0.1", free_port());
  const Socket self(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const at = reinterpret_cast<const sockaddr*>(&here.at);
  REQUIRE(::bind(self.get(), at, here.length) == 0);
  REQUIRE(::connect(self.get(), at, here.length) == 0);  // nobody listens there
  CHECK(is_connected_to_itself(self.get()));
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address other = address("127.0.0.1", free_port());
  REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&other.at), other.length) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  const Socket call = called(other, std::chrono::steady_clock::now() + kLongest);
  REQUIRE(call);
  CHECK_FALSE(is_connected_to_itself(call.get()));
}

TEST_CASE("A rank that calls before rank 0 listens does not take itself for rank 0") {
  // In a network of its own, where calls leave from two ports only, every second one reaches itself.
  constexpr int kNoNamespace = 77;
  Child child = forked([] {
    const auto give_up = [](bool unless) {
      if (!unless) ::_exit(kNoNamespace);
    };
    give_up(::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    const Socket any(::socket(AF_INET, SOCK_DGRAM, 0));
    give_up(::ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0);
    std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
    range << "40000 40001" << std::flush;
    give_up(static_cast<bool>(range));
    try {
      met({1, 2, "the test"}, {"127.0.0.1", 40000}, 0.5);
    } catch (const InputError& error) {
      return std::string(error.what()).find("nobody answers as rank 0") != std::string::npos ? 0 : 1;
    }
    return 2;
  });
  const int status = child.status();
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNamespace) {
    MESSAGE("skipped: no network namespace can be made here");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}
