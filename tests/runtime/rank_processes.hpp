// Runs over several processes, for tests: children of the test that meet at a port which the system has chosen.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rank_run.hpp"
#include "runtime/wire.hpp"
#include "tests/runtime/run_case.hpp"
#include "tests/support/free_port.hpp"

namespace pipewright::runtime_test {

inline constexpr double kTimeout = 20;

inline std::unique_ptr<Ranks> joined(int rank, int size, int port, double timeout = kTimeout) {
  return std::make_unique<Ranks>(tcp_wire({rank, size, "the test"}, {"127.0.0.1", port}, timeout), timeout);
}

// What a child says goes back as text through a pipe.
struct Child {
  pid_t process = 0;
  int pipe = -1;
};

inline Child started(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  const pid_t process = ::fork();
  if (process == 0) {
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
    ::_exit(0);
  }
  ::close(ends[1]);
  return {process, ends[0]};
}

inline std::string said(const Child& child) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(child.pipe, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(child.pipe);
  ::waitpid(child.process, nullptr, 0);
  return text;
}

// Every rank in a process of its own; what each returned.
inline std::vector<std::string> in_processes(int count, const std::function<std::string(Ranks&)>& body) {
  const int port = free_port();
  std::vector<Child> children;
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
  for (const Child& child : children)
    texts.push_back(said(child));
  return texts;
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

}  // namespace pipewright::runtime_test
