// Runs over several processes: children of the test that meet at a port which the system has chosen. Every wait of
// theirs ends by itself; the clock of the test (children.hpp) ends a hang only.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/rank_run.hpp"
#include "runtime/signals.hpp"
#include "tests/runtime/far_backend.hpp"
#include "tests/runtime/rank_processes.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/support/free_port.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

void same_as_threads(const std::vector<std::string>& changes, const std::string& file = "two-stage-gpipe.yaml") {
  const RunCase run(changes, {}, file);
  const std::string threads = everything(run.run(settings_of(run, 3)));
  const auto texts = in_processes(run.plan.workers(), [&](Ranks& ranks) {
    const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 3));
    return ranks.first() ? everything(results) : "done";
  });
  CAPTURE(texts[0].substr(0, 200));
  CHECK((texts[0] == threads));
  for (std::size_t r = 1; r < texts.size(); ++r)
    CHECK(texts[r] == "done");
}

}  // namespace

TEST_CASE("tcp: two, three and four ranks give the bits of as many threads: losses, weights, gradients, memory") {
  same_as_threads({});
  same_as_threads({"plan.stages=3", "plan.schedule=1f1b", "cluster.node.devices=3"});
  same_as_threads({"plan.stages=2", "plan.virtual_stages=2", "plan.schedule=interleaved_1f1b"});
  same_as_threads({"plan.stages=4", "cluster.node.devices=4"});
}

TEST_CASE("tcp: all-reduces sum in the order of the members: copies and replicas give the bits of threads") {
  same_as_threads({"plan.data_parallel=2", "cluster.node.devices=4"});
  same_as_threads({}, "pipedream-2-1.yaml");
}

TEST_CASE("tcp: one rank is a run of one worker") {
  same_as_threads({"plan.stages=1", "cluster.node.devices=1"});
}

TEST_CASE("A rank whose schedule, settings or data differ is named on every rank before anything runs") {
  const RunCase run({}), other({"plan.schedule=1f1b"});
  const auto texts = in_processes(3, [&](Ranks& ranks) -> std::string {
    const RunCase& mine = ranks.rank() == 2 ? other : run;
    ranks.agree(must_match(mine.run_plan, settings_of(mine, 1), *mine.data, *cpu_backend()));
    return "agreed";
  });
  for (const std::string& text : texts) {
    CHECK(text.starts_with("threw: rank 2 differs from rank 0 in its plan (1f1b, 2 workers"));
    CHECK(text.ends_with("start all ranks with the same program, scenario and options"));
  }
  const auto seeds = in_processes(2, [&](Ranks& ranks) -> std::string {
    RunSettings settings = settings_of(run, 1);
    settings.seed += static_cast<std::uint64_t>(ranks.rank());
    ranks.agree(must_match(run.run_plan, settings, *run.data, *cpu_backend()));
    return "agreed";
  });
  CHECK(seeds[0].starts_with("threw: rank 1 differs from rank 0 in its settings"));
  const auto data = in_processes(2, [&](Ranks& ranks) -> std::string {
    const auto mine = synthetic_data(sample_shape(run.run_plan.code), static_cast<std::uint64_t>(ranks.rank()));
    ranks.agree(must_match(run.run_plan, settings_of(run, 1), *mine, *cpu_backend()));
    return "agreed";
  });
  CHECK(data[0].starts_with("threw: rank 1 differs from rank 0 in its data"));
}

TEST_CASE("Hashes alone tell schedules of the same name apart") {
  const RunCase run({});
  const auto ours = must_match(run.run_plan, settings_of(run, 1), *run.data, *cpu_backend());
  CHECK(difference(ours, ours, 1).empty());
  Schedule other = run.schedule;
  std::swap(other.positions[0].compute[0], other.positions[0].compute[1]);
  RunPlan changed = run.run_plan;
  changed.schedule = std::make_shared<const Schedule>(other);
  const auto theirs = must_match(changed, settings_of(run, 1), *run.data, *cpu_backend());
  CHECK(difference(ours, theirs, 1).starts_with("rank 1 differs from rank 0 in its schedule (gpipe; hashes "));
}

TEST_CASE("A rank that throws ends the run on all ranks with one message, and finished steps are kept") {
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  const auto texts = in_processes(3, [&](Ranks& ranks) -> std::string {
    RunSettings settings = settings_of(run, 50);
    settings.optimizer.learning_rate = 1e30;  // the loss is no number after an update or two
    try {
      execute(ranks, run.run_plan, cpu_backend, *run.data, settings);
    } catch (const RunFailed& failed) {
      return fmt::format("{} steps of worker 0, {}", failed.results.at(0).steps.size(), failed.what());
    }
    return "ran";
  });
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(text.find("worker 2 at op 2F") != std::string::npos);
    CHECK(text.find("smaller learning_rate") != std::string::npos);
  }
  CHECK(!texts[0].starts_with("0 steps of worker 0"));
}

TEST_CASE("A rank without the memory for its worker ends the run on all ranks with its words, and another may follow") {
  class Full final : public FarBackend {
   public:
    std::unique_ptr<DeviceMemory> reserve(Bytes) override { throw OutOfArena("no such block, made up"); }
  };
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  const std::string whole = everything(run.run(settings_of(run, 2)));
  for (const int full : {0, 1})
    for (const bool by_device : {false, true}) {
      const auto texts = in_processes(3, [&](Ranks& ranks) -> std::string {
        const auto told = [&](const std::function<void(const BackendMaker&, const RunSettings&)>& act) -> std::string {
          RunSettings settings = settings_of(run, 2);
          if (ranks.rank() == full && !by_device) settings.memory_cap = {1000};
          const BackendMaker none = [] { return std::make_unique<Full>(); };
          try {
            act(ranks.rank() == full && by_device ? none : cpu_backend, settings);
          } catch (const OutOfDevice& error) {
            return std::string("device: ") + error.what() + (ranks.recovered() ? "; " : " and alone; ");
          } catch (const OutOfArena& error) {
            return std::string("cap: ") + error.what() + (ranks.recovered() ? "; " : " and alone; ");
          }
          return "fits; ";
        };
        const std::string all = told([&](const auto& backend, const auto& settings) {
          with_memory_of_all(ranks, [&] {
            ranks.first_failure("");  // all have come, as where they agree on their plans
            return execute(ranks, run.run_plan, backend, *run.data, settings);
          });
        });
        const std::string layers = told([&](const auto& backend, const auto& settings) {
          with_memory_of_all(ranks, [&] {
            measure_layers(ranks, run.run_plan, backend, *run.data, settings, 0);
            ranks.broadcast({});  // as a calibration ends: who has only sent waits here
          });
        });
        const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 2));
        return all + layers + (!ranks.first() || everything(results) == whole ? "then well" : "then wrong");
      });
      const std::string one = fmt::format("{}: worker {}: ", by_device ? "device" : "cap", full);
      for (const std::string& text : texts) {
        CAPTURE(text);
        CHECK(text == texts[0]);
        CHECK(text.starts_with(one));
        CHECK(text.find("; " + one) != std::string::npos);
        CHECK(text.find(by_device ? "no such block, made up; its arena spans" : "of 1000 B; held: ") !=
              std::string::npos);
        CHECK(text.ends_with("; then well"));
      }
    }
}

namespace {

// Does all its steps, and ends without a word.
std::string steps_and_death(Ranks& ranks, const RunCase& run, int steps) {
  std::vector<std::unique_ptr<Transport>> endpoints(static_cast<std::size_t>(ranks.size()));
  endpoints[static_cast<std::size_t>(ranks.rank())] = ranks.endpoint(run.run_plan);
  execute(run.run_plan, cpu_backend, *run.data, endpoints, settings_of(run, steps));
  ::_exit(0);
}
// Steps that are known of each worker, and the message.
std::string outcome(Ranks& ranks, const RunCase& run, int steps) {
  try {
    execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, steps));
  } catch (const RunFailed& failed) {
    std::string text;
    for (const WorkerResult& worker : failed.results)
      text += fmt::format("{} ", worker.steps.size());
    return text + failed.what();
  }
  return "ran";
}

}  // namespace

TEST_CASE("A rank that dies behind its last step takes nothing with it that the others have measured") {
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  for (const int victim : {1, 0}) {
    const auto texts = in_processes(3, [&](Ranks& ranks) {
      return ranks.rank() == victim ? steps_and_death(ranks, run, 3) : outcome(ranks, run, 3);
    });
    CAPTURE(victim);
    CAPTURE(texts[0]);
    CAPTURE(texts[2]);
    if (victim == 1) {
      // All three, unless the last gradient was on its way: where a process ends with unread bytes, TCP resets the
      // connection and drops what the other side has not read yet.
      CHECK((texts[0].starts_with("3 0 3 worker ") || texts[0].starts_with("2 0 2 worker ") ||
             texts[0].starts_with("2 0 3 worker ")));
      CHECK(texts[2].starts_with("0 0 3 "));
    } else {  // each has its own
      CHECK(texts[1].starts_with("0 3 0 worker "));
      CHECK(texts[2].starts_with("0 0 3 worker "));
    }
    CHECK(texts[2].find(fmt::format(" at op end: worker {} is gone (", victim)) != std::string::npos);
  }
}

TEST_CASE("tcp: several runs, one after the other, are each the run of threads") {
  const RunCase one({}), other({"plan.schedule=1f1b", "training.micro_batches=3"});
  const auto both = [&](const auto& result_of) { return result_of(one) + result_of(other) + result_of(one); };
  const std::string threads = both([](const RunCase& run) { return everything(run.run(settings_of(run, 2))); });
  const auto texts = in_processes(2, [&](Ranks& ranks) {
    return both([&](const RunCase& run) {
      const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 2));
      return ranks.first() ? everything(results) : "";
    });
  });
  CAPTURE(texts[0].substr(0, 200));
  CHECK((texts[0] == threads));
}

TEST_CASE("Behind a run that failed on all ranks another one runs as if nothing had been; not where a rank is gone") {
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  const std::string threads = everything(run.run(settings_of(run, 2)));
  const auto texts = in_processes(3, [&](Ranks& ranks) -> std::string {
    RunSettings diverges = settings_of(run, 50);
    diverges.optimizer.learning_rate = 1e30;
    for (int i = 0; i < 3; ++i) {
      try {
        execute(ranks, run.run_plan, cpu_backend, *run.data, diverges);
        return "ran";
      } catch (const RunFailed&) {
        if (!ranks.recovered()) return "not recovered";
      }
    }
    const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings_of(run, 2));
    return ranks.first() ? everything(results) : "done";
  });
  CAPTURE(texts[0].substr(0, 200));
  CHECK((texts[0] == threads));
  CHECK((texts[1] == "done" && texts[2] == "done"));
  const auto two = in_processes(3, [&](Ranks& ranks) -> std::string {
    if (ranks.rank() == 1) return steps_and_death(ranks, run, 1);
    return outcome(ranks, run, 1) == "ran" ? "ran" : ranks.recovered() ? "recovered" : "not recovered";
  });
  CHECK((two[0] == "not recovered" && two[2] == "not recovered"));
}

TEST_CASE("What one rank cannot do none does, for its reason") {
  const auto told = [](int rank, const std::string& why) {
    return in_processes(3, [&](Ranks& ranks) { return ranks.first_failure(ranks.rank() == rank ? why : ""); });
  };
  CHECK(told(2, "no such file") == std::vector<std::string>(3, "rank 2: no such file"));
  CHECK(told(0, "no such file") == std::vector<std::string>(3, "no such file"));
  CHECK(told(1, "") == std::vector<std::string>(3, ""));
}

TEST_CASE("A process that is stopped does not answer, one that runs does") {
  const int port = free_port();
  Speaker first = started([=] {
    const auto ranks = joined(0, 2, port);
    ranks->receive(1);
    ::raise(SIGSTOP);
    return std::string();
  });
  Speaker second = started([=] {
    const auto ranks = joined(1, 2, port);
    while (!ranks->answers(0)) {  // one that runs does, sooner or later: else this is ended
    }
    ranks->send(0, {});
    while (ranks->answers(0)) {  // until it has stopped
    }
    ::_exit(7);
    return std::string();
  });
  std::string hung;
  const int status = second.child.status(&hung);
  CHECK(hung.empty());
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
}

TEST_CASE("A rank that has done its part is told when rank 0 ends without a word") {
  const int port = free_port();
  const auto left = [&](bool silently) {
    Speaker first = started([=] {
      const auto ranks = joined(0, 2, port);
      if (silently) ::_exit(0);
      ranks->leave(1);
      return std::string("left");
    });
    Speaker second = started([=] {
      const auto ranks = joined(1, 2, port);
      std::string text = "told";
      const int status = ranks->leave(0, [&] { text = "left alone"; });
      return fmt::format("{}, {}", text, status);
    });
    said(first);
    return said(second);
  };
  CHECK(left(true) == "left alone, 2");
  CHECK(left(false) == "told, 1");
}

TEST_CASE("SIGTERM ends a run of one worker before its next step, and its steps are kept") {
  const RunCase run({"plan.stages=1", "cluster.node.devices=1"});
  const auto texts = in_processes(1, [&](Ranks& ranks) -> std::string {
    std::vector<std::unique_ptr<Transport>> endpoints;
    endpoints.push_back(ranks.endpoint(run.run_plan));
    try {
      execute(run.run_plan, cpu_backend, *run.data, endpoints, settings_of(run, 5), [](int step) {
        if (step == 2) ask_to_end(SIGTERM);  // in this thread, before it goes on
      });
    } catch (const RunFailed& failed) {
      return fmt::format("{} steps, {}", failed.results.at(0).steps.size(), failed.what());
    }
    return "ran";
  });
  CAPTURE(texts[0]);
  CHECK(texts[0].starts_with("3 steps, worker 0 at op start: SIGTERM ended the run"));
}

namespace {

// A wire that stays the test's.
class Borrowed : public Wire {
 public:
  explicit Borrowed(Wire& wire) : wire_(wire) {}
  int rank() const override { return wire_.rank(); }
  int size() const override { return wire_.size(); }
  void send(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) override {
    wire_.send(to, header, parts);
  }
  void receive(FrameReader& reader, bool hurry) override { wire_.receive(reader, hurry); }
  void close(bool orderly, int status) noexcept override { wire_.close(orderly, status); }

 private:
  Wire& wire_;
};

// What a wire hands over, with the room that it was given.
class FramesIn : public FrameReader {
 public:
  void begin(const FrameHeader& header) override { body.assign(std::min<std::size_t>(64, header.bytes), {}); }
  std::span<std::byte> room(const FrameHeader& header, std::int64_t have) override {
    const auto at = static_cast<std::size_t>(have);
    body.resize(std::min<std::size_t>(at + 64, static_cast<std::size_t>(header.bytes)));
    return std::span(body).subspan(at);
  }
  void end(const FrameHeader&) override { ++frames; }
  void gone(int, const std::string&) override {}
  Blob body;
  int frames = 0;
};

}  // namespace

TEST_CASE("tcp: a body is received in as many pieces as there is room for") {
  const int port = free_port();
  Blob sent(10'000);
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<std::byte>(i * 7);
  Speaker sender = started([&] {
    const auto wire = tcp_wire({1, 2, "the test"}, {"127.0.0.1", port}, kTimeout);
    const std::array<std::span<const std::byte>, 1> parts = {sent};
    wire->send(0, {.kind = 1, .from = 1, .bytes = static_cast<std::int64_t>(sent.size())}, parts);
    return std::string("sent");
  });
  const auto wire = tcp_wire({0, 2, "the test"}, {"127.0.0.1", port}, kTimeout);
  FramesIn frames;
  for (int i = 0; i < 1000 && frames.frames == 0; ++i)
    wire->receive(frames, true);
  CHECK(said(sender) == "sent");
  CHECK(frames.body == sent);
}

TEST_CASE("A header that promises 60 GiB and brings nothing costs no memory worth the name") {
  const auto grown = [] {  // KiB, at most so far
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
  };
  const int port = free_port();
  Speaker rank_0 = started([&] {
    const auto ranks = joined(0, 2, port);
    const long before = grown();
    std::string text = "got it";
    try {
      ranks->receive(1);
    } catch (const std::exception& error) {
      text = error.what();
    }
    return fmt::format("{} {}", grown() - before < 64 * 1024 ? "small" : "large", text);
  });
  Speaker rank_1 = started([&] {
    const auto wire = tcp_wire({1, 2, "the test"}, {"127.0.0.1", port}, kTimeout);
    // What the two say to each other when they meet, then mail of which there is the header and one byte.
    Ranks meets(std::make_unique<Borrowed>(*wire), kTimeout);
    const std::byte one{};
    const std::array<std::span<const std::byte>, 1> parts = {std::span(&one, 1)};
    wire->send(0, {.kind = 3, .id = 6, .from = 1, .bytes = std::int64_t{60} << 30}, parts);
    usleep(200'000);
    ::_exit(0);
    return std::string();
  });
  const std::string text = said(rank_0);
  said(rank_1);
  CAPTURE(text);
  CHECK(text.starts_with("small worker 1 is gone ("));
}

namespace {

// Runs until a signal hits rank `victim`, once it has done two steps; what the others say.
std::vector<std::string> after_signal(int signal, int victim, double timeout) {
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  const int port = free_port();
  // Steps that the victim has done, seen by all processes.
  auto* const steps = static_cast<std::atomic<int>*>(
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<Speaker> children;
  for (int r = 0; r < 3; ++r)
    children.push_back(started([&, r] {
      const SignalGuard guard("the rank was ended at once");
      const Interruption interruption;
      const auto ranks = joined(r, 3, port, timeout);
      std::string text = "ran";
      try {
        RunSettings settings = settings_of(run, 1'000'000);
        std::vector<std::unique_ptr<Transport>> endpoints(3);
        endpoints[static_cast<std::size_t>(r)] = ranks->endpoint(run.run_plan);
        execute(run.run_plan, cpu_backend, *run.data, endpoints, settings, [&](int step) {
          if (r == victim) *steps = step + 1;
        });
      } catch (const RunFailed& failed) {
        text = fmt::format("{} steps, {}", failed.results.at(static_cast<std::size_t>(r)).steps.size(), failed.what());
      }
      ranks->leave(2);
      return text;
    }));
  Speaker& hit = children[static_cast<std::size_t>(victim)];
  const auto late = std::chrono::steady_clock::now() + kLongest;
  while (*steps < 2 && !hit.child.ended() && std::chrono::steady_clock::now() < late)
    usleep(1000);
  if (signal == SIGTERM) {  // as a launcher does when a rank has died
    for (const Speaker& each : children)
      ::kill(each.child.process(), signal);
  } else {
    ::kill(hit.child.process(), signal);
  }
  std::vector<std::string> texts(3);
  for (int r = 0; r < 3; ++r)
    if (r != victim) texts[static_cast<std::size_t>(r)] = said(children[static_cast<std::size_t>(r)]);
  ::kill(hit.child.process(), SIGKILL);
  texts[static_cast<std::size_t>(victim)] = said(hit);
  munmap(steps, sizeof(std::atomic<int>));
  return texts;
}

}  // namespace

TEST_CASE("A rank that is killed is named by the others, with their op; their steps are kept") {
  const auto texts = after_signal(SIGKILL, 1, kTimeout);
  for (const int r : {0, 2}) {
    const std::string& text = texts[static_cast<std::size_t>(r)];
    CAPTURE(text);
    CHECK(text.find("worker 1 is gone (") != std::string::npos);
    CHECK(text.find(" at op ") != std::string::npos);
    CHECK(!text.starts_with("0 steps"));
  }
}

TEST_CASE("A rank that hangs ends the run after the timeout, by name") {
  const auto others = [](double timeout) {  // whomever each waited for
    auto texts = after_signal(SIGSTOP, 2, timeout);
    texts.pop_back();
    return texts;
  };
  check_silence(others, [](const std::string& text, const std::string& silence) {
    const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
    return has(" at op ") && has(silence) && has("the process of worker 2 does not answer") &&
           !has("worker 1 does not answer");
  });
}

TEST_CASE("SIGTERM ends the waits, not the process: what was measured is there") {
  for (const std::string& text : after_signal(SIGTERM, 0, kTimeout)) {
    CAPTURE(text);
    CHECK((text.empty() || !text.starts_with("0 steps")));
    CHECK((text.empty() || text.find("SIGTERM") != std::string::npos));
  }
}

TEST_CASE("Ranks that do not come, come twice or count differently are named") {
  const int port = free_port();
  CHECK_THROWS_WITH_AS(tcp_wire({0, 3, "the test"}, {"127.0.0.1", port}, 0.2),
                       doctest::Contains("ranks 1, 2 did not come within 0.2 s"), InputError);
  CHECK_THROWS_WITH_AS(tcp_wire({1, 3, "the test"}, {"127.0.0.1", port}, 0.2),
                       doctest::Contains("nobody answers as rank 0"), InputError);
  CHECK_THROWS_WITH_AS(tcp_wire({1, 3, "the test"}, {"no-such-host.invalid", port}, 0.2),
                       doctest::Contains("MASTER_ADDR=\"no-such-host.invalid\""), InputError);
  const auto meeting = [&](std::vector<Launch> launches) {
    const int here = free_port();
    std::vector<Speaker> children;
    for (const Launch& launch : launches)
      children.push_back(started([=] {
        tcp_wire(launch, {"127.0.0.1", here}, kTimeout);
        return std::string("met");
      }));
    std::string first;
    for (Speaker& child : children) {
      const std::string text = said(child);
      CHECK(text.starts_with("threw: "));
      if (first.empty()) first = text;
    }
    return first;
  };
  CHECK(meeting({{0, 3, ""}, {1, 3, ""}, {1, 3, ""}}).find("two processes say that they are rank 1") !=
        std::string::npos);
  CHECK(meeting({{0, 2, ""}, {1, 4, ""}}).find("rank 1 counts 4 ranks, rank 0 counts 2") != std::string::npos);
}

TEST_CASE("An offset of clocks comes from the fastest answer, half of its round trip is the error") {
  const ClockOffset offset = clock_offset({{0, 5000, 300}, {100, 1000, 140}, {200, 9000, 260}});
  CHECK(offset.offset == 880);
  CHECK(offset.error == 20);
}

TEST_CASE("A result travels whole, and its times are shifted to rank 0's clock") {
  const RunCase run({});
  const auto workers = run.run(settings_of(run, 2));
  const WorkerResult back = worker_result(bytes_of(workers[1]), 1000);
  REQUIRE(back.steps.size() == 2);
  CHECK(back.steps[1].began == workers[1].steps[1].began + 1000);
  CHECK(back.steps[1].times.compute[0].end.value == workers[1].steps[1].times.compute[0].end.value + 1000);
  CHECK(back.steps[0].transfers[0].arrived.value == workers[1].steps[0].transfers[0].arrived.value + 1000);
  CHECK(back.weights == workers[1].weights);
  CHECK(back.memory == workers[1].memory);
  Blob cut = bytes_of(workers[1]);
  cut.resize(cut.size() / 2);
  CHECK_THROWS_WITH(worker_result(cut), doctest::Contains("cut off"));
}
