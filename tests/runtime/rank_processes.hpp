// Runs over several processes, for tests: children of the test that meet at a port which the system has chosen.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/rank_run.hpp"
#include "runtime/wire.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/support/children.hpp"
#include "tests/support/free_port.hpp"

namespace pipewright::tests::runtime_test {

inline constexpr double kTimeout = 120;  // seconds; ends what hangs

// They meet in whatever time it takes; `timeout`: of their waits for one another.
inline std::unique_ptr<Ranks> joined(int rank, int size, int port, double timeout = kTimeout) {
  return std::make_unique<Ranks>(tcp_wire({rank, size, "the test"}, {"127.0.0.1", port}, kTimeout), timeout);
}

// A child of the test; what it says goes back as text through a pipe.
struct Speaker {
  Speaker(Child started, int from) : child(std::move(started)), pipe(from) {}
  Speaker(Speaker&& other) noexcept : child(std::move(other.child)), pipe(std::exchange(other.pipe, -1)) {}
  ~Speaker() {
    if (pipe >= 0) ::close(pipe);
  }
  Child child;
  int pipe;
};

inline Speaker started(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  Child child = forked([&] {
    ::close(ends[0]);
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = std::string("threw: ") + error.what();
    }
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t put = ::write(ends[1], text.data() + at, text.size() - at);
      if (put <= 0) break;
      at += static_cast<std::size_t>(put);
    }
    return 0;
  });
  ::close(ends[1]);
  return {std::move(child), ends[0]};
}

// All of it, once the child has ended; what hangs is ended, which is then the end of the text.
inline std::string said(Speaker& speaker) {
  using std::chrono::steady_clock, std::chrono::milliseconds, std::chrono::seconds;
  std::string text, hung;
  std::array<char, 4096> buffer{};
  const auto late = steady_clock::now() + kLongest;
  for (ssize_t got = 1; got > 0 && steady_clock::now() < late;) {
    pollfd one{speaker.pipe, POLLIN, 0};
    if (::poll(&one, 1, 100) <= 0) continue;
    got = ::read(speaker.pipe, buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  static_cast<void>(
      speaker.child.status(&hung, std::chrono::duration_cast<seconds>(late - steady_clock::now() + milliseconds(999))));
  return text + hung;
}

// Every rank in a process of its own; what each returned.
inline std::vector<std::string> in_processes(int count, const std::function<std::string(Ranks&)>& body) {
  const int port = free_port();
  std::vector<Speaker> children;
  for (int r = 0; r < count; ++r)
    children.push_back(started([=] {
      const auto ranks = joined(r, count, port);
      std::string text;
      int status = 0;
      try {
        text = body(*ranks);
      } catch (const std::exception& error) {
        text = std::string("threw: ") + error.what(), status = 2;
      }
      ranks->leave(status);
      return text;
    }));
  std::vector<std::string> texts;
  for (Speaker& child : children)
    texts.push_back(said(child));
  return texts;
}

// Runs that end by a timeout of `run`'s: each text fits, which gets the words for that, or tells of another's failure.
// A machine that does much besides may let a quick rank wait as long as a silent one: then again with a longer timeout.
inline void check_silence(const std::function<std::vector<std::string>(double)>& run,
                          const std::function<bool(const std::string&, const std::string&)>& fits) {
  for (double timeout = 1;; timeout *= 8) {
    std::vector<std::string> texts = run(timeout);
    std::erase_if(texts, [](const std::string& text) { return text.ends_with(" has failed"); });
    const std::string silence = fmt::format("nothing heard for {} s while waiting for ", timeout);
    const auto one_fits = [&](const std::string& text) { return fits(text, silence); };
    if (timeout < 60 && !(std::all_of(texts.begin(), texts.end(), one_fits) && !texts.empty())) continue;
    CHECK(!texts.empty());  // one at least has waited itself
    for (const std::string& text : texts) {
      CAPTURE(text);
      CHECK(one_fits(text));
    }
    return;
  }
}

inline RunSettings settings_of(const RunCase& run, int steps) {
  RunSettings settings = one_step(steps);
  settings.optimizer.kind = run.scenario.training.optimizer;
  return settings;
}

// Loss of every step, weights, memory and traffic of a run, all bits of them.
inline std::string everything(const std::vector<WorkerResult>& workers) {
  BytesOut out;
  for (std::size_t s = 0; s < workers.front().steps.size(); ++s)
    out.put(loss_of(workers, s));
  for (const WorkerResult& worker : workers) {
    for (const auto& weights : worker.weights)
      out.put(weights);
    for (const auto& gradients : worker.gradients)
      out.put(gradients);
    out.put(worker.memory.live).put(worker.memory.extent);
    for (const WorkerStep& step : worker.steps) {
      out.put(step.times.compute.size()).put(step.samples);
      for (const Transfer& t : step.transfers)
        out.put(t.edge).put(t.micro_batch).put(t.from).put(t.to).put(t.bytes);
    }
  }
  const Blob bytes = out.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Processes over tcp give what these threads gave, to the bit.
inline void check_processes(const RunCase& run, const RunSettings& settings, const std::vector<WorkerResult>& threads) {
  const auto texts = in_processes(run.plan.workers(), [&](Ranks& ranks) {
    const auto results = execute(ranks, run.run_plan, cpu_backend, *run.data, settings);
    return ranks.first() ? everything(results) : "done";
  });
  CAPTURE(texts[0].substr(0, 200));
  CHECK((texts[0] == everything(threads)));
  for (std::size_t r = 1; r < texts.size(); ++r)
    CHECK(texts[r] == "done");
}

}  // namespace pipewright::tests::runtime_test
