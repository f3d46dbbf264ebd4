// Strangers where ranks meet, as seen from inside (tests/cli/strangers_test.cpp has them around whole runs).
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/rank_run.hpp"
#include "runtime/transports/meeting.hpp"
#include "runtime/transports/proof.hpp"
#include "runtime/transports/reception.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

const Deadline kNoEnd = Deadline::max();
const std::string kRingSecret = "known to these ranks alone";

Address at_port(int port) {
  return resolved({"127.0.0.1", port}).front();
}
// Somebody who calls as soon as anybody listens there.
Socket stranger(int port) {
  for (const auto late = std::chrono::steady_clock::now() + kLongest; std::chrono::steady_clock::now() < late;) {
    if (Socket socket = called(at_port(port), late)) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  throw std::runtime_error("nobody listens there");
}

// The inodes of the process's sockets, as its descriptors name them.
std::vector<std::string> sockets_of(pid_t process) {
  std::vector<std::string> inodes;
  std::error_code gone;
  for (const auto& one : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", gone)) {
    const std::string to = std::filesystem::read_symlink(one.path(), gone).string();
    if (to.starts_with("socket:[")) inodes.push_back(to.substr(8, to.size() - 9));
  }
  return inodes;
}
// A port that the process listens at; 0: none.
int port_of_listener(pid_t process) {
  const std::vector<std::string> own = sockets_of(process);
  std::istringstream table(proc_text("net/tcp"));
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::array<std::string, 10> word;  // number, local address, remote address, state, .., .., .., uid, .., inode
    for (std::string& one : word)
      words >> one;
    constexpr const char* kListens = "0A";
    if (word[3] == kListens && std::find(own.begin(), own.end(), word[9]) != own.end())
      return std::stoi(word[1].substr(word[1].find(':') + 1), nullptr, 16);
  }
  return 0;
}
int awaited(const std::function<int()>& number) {
  for (const auto late = std::chrono::steady_clock::now() + kLongest; std::chrono::steady_clock::now() < late;) {
    if (const int got = number(); got > 0) return got;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 0;
}

// What a rank of the first protocol said, and what one of today says without the key.
std::string forged(char version, std::int32_t caller, std::int32_t called, std::int32_t world) {
  if (version == '1') {
    std::string text = "pwranks1";
    for (const std::int32_t value : {caller, world, 40000, 0})
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
    return text;
  }
  const Claim claim{.caller = caller, .called = called, .world = world, .port = 40000, .random = {}, .proof = {}};
  return {reinterpret_cast<const char*>(&claim), sizeof claim};
}
void say(const Socket& socket, const std::string& text) {
  REQUIRE(write_whole(socket.get(), text.data(), text.size(), kNoEnd));
}

}  // namespace

TEST_CASE("Strangers at the door of another rank than the first take no place there, and the run has its bits") {
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  const std::string threads = everything(run.run(settings_of(run, 2)));
  const int port = free_port();
  const auto start = [&](int rank) {
    return started([&, rank] {
      Ranks ranks(tcp_wire({rank, 3, "the test"}, {"127.0.0.1", port, kRingSecret}, kTimeout), kTimeout);
      const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 2));
      ranks.leave(0);
      return ranks.first() ? everything(results) : "done";
    });
  };
  std::vector<Speaker> children;
  children.push_back(start(0));
  children.push_back(start(1));
  const int door = awaited([&] { return port_of_listener(children[1].child.process()); });
  REQUIRE(door > 0);
  std::vector<Socket> strangers;
  for (const char version : {'1', '2'})
    for (const std::int32_t world : {3, 99}) {
      strangers.push_back(stranger(door));
      say(strangers.back(), forged(version, 2, 1, world));
    }
  for (int i = 0; i < 20; ++i)
    strangers.push_back(stranger(door));  // silent
  children.push_back(start(2));
  CHECK((said(children[0]) == threads));
  CHECK(said(children[1]) == "done");
  CHECK(said(children[2]) == "done");
}

TEST_CASE("However many strangers call, a rank holds so many of them and no more") {
  const int port = free_port();
  Speaker first = started([=] {
    const auto peers = met({0, 2, "the test"}, {"127.0.0.1", port, kRingSecret}, kTimeout);
    return std::string("met");
  });
  std::vector<Socket> strangers;
  for (std::size_t i = 0; i < kMostCallers + 100; ++i) {
    strangers.push_back(stranger(port));
    say(strangers.back(), std::string(sizeof(Claim) - 1, 'x'));  // all but the end of a message
  }
  Challenge challenge;
  REQUIRE(read_whole(strangers.back().get(), &challenge, sizeof challenge, kNoEnd));  // all have been let in
  // And one that listens, and one that has just been let in.
  CHECK(sockets_of(first.child.process()).size() <= kMostCallers + 2);
  Speaker second = started([=] {
    const auto peers = met({1, 2, "the test"}, {"127.0.0.1", port, kRingSecret}, kTimeout);
    return std::string("met");
  });
  CHECK(said(first) == "met");
  CHECK(said(second) == "met");
}

TEST_CASE("A rank that went away while the ranks met may come again; one that is there is not replaced") {
  const int port = free_port();
  Speaker first = started([=] {
    met({0, 3, "the test"}, {"127.0.0.1", port, kRingSecret}, kTimeout);
    return std::string("met");
  });
  const auto rank = [=](int number) {
    return started([=] {
      met({number, 3, "the test"}, {"127.0.0.1", port, kRingSecret}, kTimeout);
      return std::string("met");
    });
  };
  {
    const Speaker goes = rank(1);  // ended here, once it is a peer of rank 0's and has said so
    awaited([&] { return port_of_listener(goes.child.process()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  Speaker comes = rank(1), last = rank(2);
  CHECK(said(first) == "met");
  CHECK(said(comes) == "met");
  CHECK(said(last) == "met");
}
