// Strangers at the port where the ranks of a run meet. Whatever they do, the ranks come together, and the run ends as it
// does without them: gradients are one worker's, bit by bit.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/refusals.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

const std::string kSecret = "PIPEWRIGHT_SECRET=known to these ranks alone";

using Stop = std::stop_token;

// A connection of a stranger, to or from this machine.
class Line {
 public:
  explicit Line(int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) : descriptor_(descriptor) {}
  Line(Line&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Line& operator=(Line&&) = delete;
  ~Line() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

  // Nobody listens there before the test is over: one of -1.
  static Line to(int port, const Stop& stop) {
    const sockaddr_in at = address(port);
    for (const auto late = end(); !stop.stop_requested() && std::chrono::steady_clock::now() < late;) {
      Line line;
      if (::connect(line.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return line;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return Line(-1);
  }
  static Line listening(int port) {
    Line line;
    const int on = 1;
    ::setsockopt(line.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in at = address(port);
    REQUIRE(::bind(line.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(line.get(), 16) == 0);
    return line;
  }
  // The next call, likewise.
  Line accepted(const Stop& stop) const {
    for (const auto late = end(); !stop.stop_requested() && std::chrono::steady_clock::now() < late;)
      if (pollfd one{descriptor_, POLLIN, 0}; ::poll(&one, 1, 20) > 0)
        return Line(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC));
    return Line(-1);
  }

  // As much as there is room for.
  void say(const std::string& text) const {
    static_cast<void>(::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  void say_all(const std::string& text) const {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t put = ::send(descriptor_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (put <= 0) return;
      at += static_cast<std::size_t>(put);
    }
  }
  // What comes within that time; "": nothing, or the end.
  std::string heard(int milliseconds) const {
    pollfd one{descriptor_, POLLIN, 0};
    if (::poll(&one, 1, milliseconds) <= 0) return "";
    std::array<char, 4096> text{};
    const ssize_t got = ::recv(descriptor_, text.data(), text.size(), MSG_DONTWAIT);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }

 private:
  static std::chrono::steady_clock::time_point end() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(90);
  }
  static sockaddr_in address(int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    return at;
  }
  int descriptor_;
};

// Runs until it is stopped; calls `in_place` once the ranks that start later have it to deal with.
using Stranger = std::function<void(int port, const Stop& stop, const std::function<void()>& in_place)>;

std::future<ProgramRun> rank(int number, int port, std::vector<std::string> settings,
                             const std::string& timeout = "60") {
  settings.insert(settings.end(), {"RANK=" + std::to_string(number), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                   "MASTER_PORT=" + std::to_string(port)});
  return std::async(std::launch::async, [settings = std::move(settings), timeout] {
    ProgramInput input;
    input.settings = settings;
    return run_program(
        {"run", kTwoStages, "--transport", "tcp", "--check", "gradients", "--timeout", timeout, "--steps", "1",
         "--warmup", "0", "--set", "training.micro_batch_size=1", "--set", "training.micro_batches=2"},
        input);
  });
}

void rest(int milliseconds, const Stop& stop) {
  for (int waited = 0; waited < milliseconds && !stop.stop_requested(); waited += 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void check_well(const ProgramRun& first, const ProgramRun& second) {
  CAPTURE(first.err);
  CAPTURE(second.err);
  CHECK(first.status == 0);
  CHECK(first.out.starts_with("gradients: bit-identical to one worker's\n"));
  CHECK(second.status == 0);
}

// Rank 0, then the stranger, then rank 1: both are well.
void check_against(const Stranger& stranger, const std::vector<std::string>& settings = {kSecret}) {
  const int port = free_port();
  std::promise<void> in_place;
  std::future<ProgramRun> first = rank(0, port, settings);
  const std::jthread attack([&](const Stop& stop) {
    bool told = false;
    const auto tell = [&] {
      if (!std::exchange(told, true)) in_place.set_value();
    };
    stranger(port, stop, tell);
    tell();
  });
  in_place.get_future().wait();
  std::future<ProgramRun> second = rank(1, port, settings);
  check_well(first.get(), second.get());
}

// As a rank of the first protocol said hello, and as one of today claims its place; of a world of 99.
std::string hello(char version, std::int32_t number, std::int32_t world) {
  std::string text = std::string("pwranks") + version;
  for (const std::int32_t value : {number, version == '1' ? world : 0, version == '1' ? 40000 : world, 0})
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  return version == '1' ? text : text + std::string(64, '\x5a');
}

const Stranger kSilent = [](int port, const Stop& stop, const auto& in_place) {
  std::vector<Line> lines;
  for (int i = 0; i < 20; ++i)
    lines.push_back(Line::to(port, stop));
  in_place();
  rest(60'000, stop);
};

}  // namespace

TEST_CASE("Twenty strangers that say nothing keep no rank from the others, with a secret and without") {
  check_against(kSilent);
  check_against(kSilent, {});
}

TEST_CASE("Strangers that send a byte now and then, or noise without end, keep no rank from the others") {
  check_against([](int port, const Stop& stop, const auto& in_place) {
    while (!stop.stop_requested()) {
      std::vector<Line> lines;
      for (int i = 0; i < 8; ++i)
        lines.push_back(Line::to(port, stop));
      for (int i = 0; i < 50 && !stop.stop_requested(); ++i) {
        for (const Line& line : lines)
          line.say("p");
        in_place();
        rest(20, stop);
      }
    }
  });
  check_against([](int port, const Stop& stop, const auto& in_place) {
    while (!stop.stop_requested()) {
      const Line line = Line::to(port, stop);
      for (int i = 0; i < 16; ++i)
        line.say(std::string(65536, 'x'));
      in_place();
      rest(5, stop);
    }
  });
}

TEST_CASE("A forged rank takes no place, and a forged size of the world ends nothing") {
  for (const std::int32_t world : {2, 99})
    for (const char version : {'1', '2'})
      check_against([=](int port, const Stop& stop, const auto& in_place) {
        std::vector<Line> lines;
        for (int i = 0; i < 4; ++i) {
          lines.push_back(Line::to(port, stop));
          lines.back().say(hello(version, 1, world));
        }
        lines.front().heard(200);  // a challenge
        in_place();
        rest(60'000, stop);
      });
}

namespace {

// Carries what two say to each other; what the caller said.
std::string recorded(int from_port, int to_port, const Stop& stop) {
  const Line listener = Line::listening(from_port), caller = listener.accepted(stop), listens = Line::to(to_port, stop);
  std::string said;
  std::array<pollfd, 2> both = {{{caller.get(), POLLIN, 0}, {listens.get(), POLLIN, 0}}};
  while (!stop.stop_requested()) {
    if (::poll(both.data(), both.size(), 20) <= 0) continue;
    const std::string there = both[0].revents != 0 ? caller.heard(0) : "",
                      back = both[1].revents != 0 ? listens.heard(0) : "";
    if ((both[0].revents != 0 && there.empty()) || (both[1].revents != 0 && back.empty())) break;
    if (said.size() < 4096) said += there;
    listens.say_all(there), caller.say_all(back);
  }
  return said;
}

}  // namespace

TEST_CASE("What a rank said in an earlier meeting, said again, takes no place") {
  for (const std::vector<std::string>& settings : {std::vector<std::string>{kSecret}, std::vector<std::string>{}}) {
    std::string said;
    {
      const int port = free_port(), between = free_port();
      std::future<ProgramRun> first = rank(0, port, settings, "5");
      std::jthread wire([&](const Stop& stop) { said = recorded(between, port, stop); });
      std::future<ProgramRun> second = rank(1, between, settings, "5");
      first.get(), second.get();  // by the wire they meet, and may run as well
    }
    REQUIRE(said.size() >= 24);
    check_against(
        [&](int port, const Stop& stop, const auto& in_place) {
          const Line line = Line::to(port, stop);
          line.say(said.substr(0, 24));  // a whole hello of the first protocol
          line.heard(50);
          line.say(said.substr(24));
          line.heard(200);
          in_place();
          rest(60'000, stop);
        },
        settings);
  }
}

TEST_CASE("A stranger in the place of rank 0 is not believed: the rank calls again until rank 0 is there") {
  const int port = free_port();
  std::future<ProgramRun> second;
  {
    const Line listener = Line::listening(port);
    second = rank(1, port, {kSecret});
    const Stop never;
    const Line silent = listener.accepted(never);  // it says nothing
    const Line noisy = listener.accepted(never);   // it is called again, and says what no rank says
    noisy.say(std::string(4096, 'x'));
    const Line forging = listener.accepted(never);  // a challenge, and a reply without a proof
    forging.say("pwranks2" + std::string(32, '\x5a'));
    forging.heard(1000);
    forging.say("pwranks2" + std::string(40, '\0'));
  }
  std::future<ProgramRun> first = rank(0, port, {kSecret});
  check_well(first.get(), second.get());
}

TEST_CASE("Who has another secret, or none, does not join and says why; nor does whoever waits for him") {
  // A machine that does much besides may start the second rank when the first has ended: then again, for longer.
  for (int timeout = 1;; timeout *= 5) {
    std::vector<std::future<ProgramRun>> runs;
    for (const std::string other : {"PIPEWRIGHT_SECRET=known to somebody else", "PIPEWRIGHT_SECRET="}) {
      const int port = free_port();
      runs.push_back(rank(0, port, {kSecret}, std::to_string(timeout)));
      runs.push_back(rank(1, port, {other}, std::to_string(timeout)));
    }
    std::vector<ProgramRun> ended;
    for (auto& run : runs)
      ended.push_back(run.get());
    const std::string there =
        "a caller from 127.0.0.1 did not prove that it belongs to this run: start all ranks with "
        "the same PIPEWRIGHT_SECRET";
    const std::string here = "all ranks need the same PIPEWRIGHT_SECRET";
    if (timeout < 60 && !(contains(ended[0].err, there) && contains(ended[1].err, here) &&
                          contains(ended[2].err, there) && contains(ended[3].err, here)))
      continue;
    for (std::size_t i = 0; i < ended.size(); ++i) {
      CAPTURE(ended[i].err);
      CHECK(ended[i].status == 2);
      CHECK(contains(ended[i].err, i % 2 == 0 ? there : here));
    }
    return;
  }
}

TEST_CASE("Without a secret no rank listens or calls where other machines are; the error makes one") {
  for (const std::string number : {"0", "1"}) {
    ProgramInput input;
    input.settings = {"RANK=" + number, "WORLD_SIZE=2", "MASTER_ADDR=192.0.2.1", "MASTER_PORT=29500"};
    const ProgramRun run = run_program({"run", kTwoStages, "--transport", "tcp", "--timeout", "1"}, input);
    CHECK(run.status == 2);
    CHECK(contains(run.err, "MASTER_ADDR=192.0.2.1 (192.0.2.1) is an address that other machines can reach"));
    CHECK(contains(run.err, "export PIPEWRIGHT_SECRET=$(head -c 32 /dev/urandom | base64)"));
  }
}

TEST_CASE("A secret comes from a file of the user's alone; one that others read, or a short one, is refused") {
  ScratchFolder folder;
  const std::string file = folder.path("secret");
  std::ofstream(file) << "a text of thirty-two characters.\n";
  ::chmod(file.c_str(), 0600);
  const int port = free_port();
  std::future<ProgramRun> first = rank(0, port, {"PIPEWRIGHT_SECRET_FILE=" + file}),
                          second = rank(1, port, {"PIPEWRIGHT_SECRET=a text of thirty-two characters."});
  check_well(first.get(), second.get());

  ::chmod(file.c_str(), 0640);
  CHECK(contains(rank(0, port, {"PIPEWRIGHT_SECRET_FILE=" + file}).get().err,
                 "others than its owner may use it (mode 0640); say chmod 600 " + file));
  CHECK(contains(rank(0, port, {"PIPEWRIGHT_SECRET=short"}).get().err, "PIPEWRIGHT_SECRET has 5 characters"));
}
