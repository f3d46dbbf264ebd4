// The transport nccl, by the tests' own NCCL (fake_nccl.cpp): processes, the host's memory, everything else as on GPUs.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include "calibrate/between_gpus.hpp"
#include "calibrate/nccl_handoff.hpp"
#include "calibrate/nccl_members.hpp"
#include "core/check.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/nccl_ranks.hpp"
#include "tests/io/scratch.hpp"
#include "tests/runtime/fake_nccl.hpp"
#include "tests/runtime/far_backend.hpp"
#include "tests/runtime/rank_processes.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

const std::string kLibrary = FAKE_NCCL, kPoorLibrary = FAKE_NCCL_POOR;

class HostStream final : public FakeStream {
 public:
  ~HostStream() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
  }
  void ask(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    work_.push(std::move(work));
    changed_.notify_all();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return over_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> work = std::move(work_.front());
      work_.pop();
      lock.unlock();
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::function<void()>> work_;
  bool over_ = false;
  std::jthread thread_{[this] { run(); }};
};

class HostQueue final : public NcclQueue {
 public:
  void* stream() override { return static_cast<FakeStream*>(&stream_); }
  std::int64_t mark() override {
    stream_.ask([this] { ++passed_; });
    return marks_++;
  }
  bool passed(std::int64_t mark) override { return passed_ > mark; }

 private:
  std::int64_t marks_ = 0;
  std::atomic<std::int64_t> passed_{0};
  HostStream stream_;
};

std::unique_ptr<NcclQueue> host_queue(Mover&, NcclPlace) {
  return std::make_unique<HostQueue>();
}

int asked_of_library(const char* function) {
  return reinterpret_cast<int (*)()>(dlsym(dlopen(kLibrary.c_str(), RTLD_NOW), function))();
}

std::vector<WorkerResult> run_by_nccl(Ranks& ranks, const RunCase& run, const RunSettings& settings,
                                      double timeout = kTimeout, const BackendMaker& backend = cpu_backend,
                                      const std::function<void(int)>& after_step = {}) {
  return execute(ranks, run.run_plan, backend, *run.data, settings, after_step,
                 by_nccl(ranks, run.run_plan, NcclLibrary::open(kLibrary), host_queue, timeout));
}

void same_as_threads(const std::vector<std::string>& changes, const std::string& file = "two-stage-gpipe.yaml",
                     const BackendMaker& backend = cpu_backend) {
  const RunCase run(changes, {}, file);
  const std::string threads = everything(run.run(settings_of(run, 3)));
  const auto texts = in_processes(run.plan.workers(), [&](Ranks& ranks) -> std::string {
    const auto results = run_by_nccl(ranks, run, settings_of(run, 3), kTimeout, backend);
    const int left = asked_of_library("fake_nccl_open"), aborted = asked_of_library("fake_nccl_aborted");
    if (left > 0 || aborted > 0) return fmt::format("{} communicators left, {} aborted", left, aborted);
    return ranks.first() ? everything(results) : "done";
  });
  CAPTURE(texts[0].substr(0, 200));
  CHECK((texts[0] == threads));
  for (std::size_t r = 1; r < texts.size(); ++r)
    CHECK(texts[r] == "done");
}

// What went wrong on every rank; `planned` is set in the environment of rank 1.
std::vector<std::string> failures(const RunCase& run, const std::vector<std::pair<const char*, const char*>>& planned,
                                  double timeout, const std::function<void(RunSettings&)>& change = {}) {
  return in_processes(run.plan.workers(), [&](Ranks& ranks) -> std::string {
    if (ranks.rank() == 1)
      for (const auto& [name, value] : planned)
        ::setenv(name, value, 1);
    RunSettings settings = settings_of(run, 3);
    if (change) change(settings);
    try {
      run_by_nccl(ranks, run, settings, timeout);
    } catch (const RunFailed& failed) {
      const int left = asked_of_library("fake_nccl_open");
      return (left > 0 ? fmt::format("{} communicators left; ", left) : "") + failed.what();
    }
    return "ran";
  });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("NCCL: one communicator for every sender and receiver, in one order, then one for every set of members") {
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  const auto groups = nccl_groups(run.run_plan);
  REQUIRE(groups.size() == 4);
  CHECK((groups[0].pair && groups[0].members == std::vector<WorkerId>{0, 1}));
  CHECK((groups[1].pair && groups[1].members == std::vector<WorkerId>{1, 0}));
  CHECK((groups[2].pair && groups[2].members == std::vector<WorkerId>{1, 2}));
  CHECK((groups[3].pair && groups[3].members == std::vector<WorkerId>{2, 1}));
  const RunCase copies({"plan.data_parallel=2", "cluster.node.devices=4"});
  const auto all = nccl_groups(copies.run_plan);
  REQUIRE(all.size() == 6);
  CHECK((all[2].pair && all[2].members == std::vector<WorkerId>{2, 3}));
  CHECK((!all[4].pair && all[4].members == std::vector<WorkerId>{0, 2}));
  CHECK((!all[5].pair && all[5].members == std::vector<WorkerId>{1, 3}));
}

TEST_CASE("NCCL: what a receiver asks for is what the sender's ops send, in their order, with all bytes of a message") {
  // Two virtual stages each: worker 0 sends stage 0's and stage 2's activations to worker 1, and gradients of stage 2.
  const RunCase run({"plan.stages=2", "plan.virtual_stages=2", "plan.schedule=interleaved_1f1b"});
  const auto messages = nccl_messages(run.run_plan, 0, 1);
  std::vector<std::int32_t> next(run.run_plan.channels.size());
  for (const NcclMessage& message : messages) {
    const RunChannel& channel = run.run_plan.channels[static_cast<std::size_t>(message.channel)];
    CHECK((channel.from == 0 && channel.to == 1));
    CHECK(message.number == next[static_cast<std::size_t>(message.channel)]++);
    CHECK_FALSE(message.parts.empty());
    for (const auto& part : message.parts)
      CHECK((part.bytes > 0 && part.offset >= 0 && part.offset + part.bytes <= channel.bytes[0]));
  }
  int channels = 0;
  for (std::size_t c = 0; c < next.size(); ++c)
    if (run.run_plan.channels[c].from == 0 && run.run_plan.channels[c].to == 1) {
      CHECK(next[c] == static_cast<std::int32_t>(run.run_plan.channels[c].micro_batches.size()));
      ++channels;
    }
  CHECK(channels == 3);
}

TEST_CASE("NCCL: pipelines give the bits of threads: losses, weights, gradients, memory") {
  same_as_threads({});
  same_as_threads({"plan.schedule=1f1b", "training.micro_batches=6"});
  same_as_threads({"plan.stages=3", "plan.schedule=1f1b", "cluster.node.devices=3"});
  same_as_threads({"plan.stages=2", "plan.virtual_stages=2", "plan.schedule=interleaved_1f1b"});
}

TEST_CASE("NCCL: what lies in a device's memory is touched by nobody else") {
  same_as_threads({"plan.schedule=1f1b"}, "two-stage-gpipe.yaml", far_backend);
}

TEST_CASE("NCCL: sums of two members have the bits of threads: copies, and replicas of an asynchronous schedule") {
  same_as_threads({"plan.data_parallel=2", "cluster.node.devices=4"});
  same_as_threads({}, "pipedream-2-1.yaml");
}

TEST_CASE("NCCL: with training.zero: 1 members exchange parts of the weights, which have the bits of threads") {
  const std::vector<std::string> divided = {"plan.data_parallel=2", "cluster.node.devices=4", "plan.schedule=1f1b",
                                            "training.optimizer=adam", "training.zero=1"};
  const auto groups = nccl_groups(RunCase(divided).run_plan);
  REQUIRE(groups.size() == 8);
  CHECK((groups[6].gathers && groups[6].members == std::vector<WorkerId>{0, 2}));
  CHECK((groups[7].gathers && groups[7].members == std::vector<WorkerId>{1, 3}));
  same_as_threads(divided);
  same_as_threads(divided, "two-stage-gpipe.yaml", far_backend);
}

TEST_CASE("NCCL: gathers beside reductions are refused, as no order of both is the same on all ranks") {
  for (const std::string zero : {"0", "1", "2", "3"}) {
    const RunCase run({"plan.data_parallel=2", "cluster.node.devices=4", "training.zero=" + zero});
    const std::string why = message_of([&] { check_for_nccl(run.run_plan, run.scenario.training.place); });
    CAPTURE(why);
    if (zero < "2")
      CHECK(why.empty());
    else
      CHECK(has(why, "training.zero: " + zero +
                         " gathers weights while gradients are reduced, and run.transport nccl "
                         "needs one order of both on all ranks; use 0 or 1, or transport tcp or mpi"));
  }
}

TEST_CASE("NCCL: three members add in an order of NCCL's own, and differ by roundoff alone") {
  const RunCase run({"plan.stages=1", "plan.data_parallel=3", "cluster.node.devices=3"});
  const auto threads = run.run(settings_of(run, 1));
  const auto texts = in_processes(3, [&](Ranks& ranks) -> std::string {
    const auto results = run_by_nccl(ranks, run, settings_of(run, 1));
    if (!ranks.first()) return "done";
    double distance = 0, norm = 0;
    for (std::size_t v = 0; v < threads[0].gradients.size(); ++v)
      for (std::size_t i = 0; i < threads[0].gradients[v].size(); ++i) {
        const double a = gradients_of(results, v)[i], b = gradients_of(threads, v)[i];
        distance += (a - b) * (a - b), norm += b * b;
      }
    return norm > 0 && distance <= 1e-12 * norm ? "near" : fmt::format("{} of {}", distance, norm);
  });
  CHECK(texts == std::vector<std::string>{"near", "done", "done"});
}

TEST_CASE("NCCL: several runs, one after the other; behind one that failed, too") {
  const RunCase run({"plan.schedule=1f1b"});
  const std::string threads = everything(run.run(settings_of(run, 2)));
  const auto texts = in_processes(2, [&](Ranks& ranks) -> std::string {
    RunSettings diverges = settings_of(run, 50);
    diverges.optimizer.learning_rate = 1e30;
    run_by_nccl(ranks, run, settings_of(run, 1));
    try {
      run_by_nccl(ranks, run, diverges);
      return "ran";
    } catch (const RunFailed&) {
      if (!ranks.recovered()) return "not recovered";
    }
    const auto results = run_by_nccl(ranks, run, settings_of(run, 2));
    return ranks.first() ? everything(results) : "done";
  });
  CAPTURE(texts[0].substr(0, 200));
  CHECK((texts[0] == threads));
  CHECK(texts[1] == "done");
}

TEST_CASE("NCCL: a worker that throws ends the run on all ranks with its message; nobody waits for the device") {
  const RunCase run({"plan.stages=3", "plan.schedule=1f1b", "cluster.node.devices=3"});
  const auto texts = failures(
      run, {}, 600, [](RunSettings& settings) { settings.steps = 50, settings.optimizer.learning_rate = 1e30; });
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(text.starts_with("worker 2 at op 2F"));
    CHECK(has(text, "smaller learning_rate"));
  }
}

TEST_CASE("NCCL: a call that fails is told with worker, op, figures and NCCL's words, on all ranks") {
  const RunCase run({});
  for (const std::string& text : failures(run, {{"FAKE_NCCL_FAIL", "ncclSend:3"}}, 600)) {
    CAPTURE(text);
    CHECK(text.starts_with("worker 1 at op 1B"));
    CHECK(has(text, ": ncclSend of "));
    CHECK(has(text, " bytes to rank 1: unhandled cuda error (planned failure)"));
  }
  for (const std::string& text : failures(run, {{"FAKE_NCCL_FAIL", "ncclCommInitRankConfig:2"}}, 600)) {
    CAPTURE(text);
    CHECK(text == "worker 1 at op start: ncclCommInitRankConfig as rank 0 of 2: unhandled cuda error");
  }
}

TEST_CASE("NCCL: what fails on the device is told by the wait for it") {
  for (const std::string& text : failures(RunCase({}), {{"FAKE_NCCL_FAIL", "async:4"}}, 600)) {
    CAPTURE(text);
    CHECK(text.starts_with("worker 1 at op 1"));
    CHECK(has(text, "remote process exited or there was a network error (planned failure)"));
  }
}

TEST_CASE("NCCL: a member that never answers is named after the timeout, with the op that waits for it") {
  const auto silent_after = [](const RunCase& run, const char* operations) {
    return [&run, operations](double timeout) {
      return failures(run, {{"FAKE_NCCL_SILENT_AFTER", operations}}, timeout);
    };
  };
  const RunCase run({}), copies({"plan.stages=1", "plan.data_parallel=2", "cluster.node.devices=2"});
  check_silence(silent_after(run, "5"), [](const std::string& text, const std::string& silence) {
    return has(text, " at op ") && (has(text, silence + "worker 1 to take a message by NCCL") ||
                                    has(text, silence + "a message of worker 0 by NCCL") ||
                                    has(text, silence + "worker 0 to take a message by NCCL") ||
                                    has(text, silence + "a message of worker 1 by NCCL"));
  });
  check_silence(silent_after(run, "0"), [](const std::string& text, const std::string& silence) {
    return has(text, " at op start: " + silence + "worker ") && has(text, " to join by NCCL");
  });
  check_silence(silent_after(copies, "1"), [](const std::string& text, const std::string& silence) {
    return has(text, ": " + silence + "the other members of an all-reduce by NCCL");
  });
}

TEST_CASE("NCCL: a process that is killed is named by those who wait for the device") {
  const RunCase run({"plan.stages=3", "cluster.node.devices=3"});
  const auto texts = in_processes(3, [&](Ranks& ranks) -> std::string {
    const auto dies = [&](int step) {
      if (ranks.rank() == 1 && step == 1) ::raise(SIGKILL);
    };
    try {
      run_by_nccl(ranks, run, settings_of(run, 1'000'000), 600, cpu_backend, dies);
    } catch (const RunFailed& failed) {
      return failed.what();
    }
    return "ran";
  });
  for (const int r : {0, 2}) {
    CAPTURE(texts[static_cast<std::size_t>(r)]);
    CHECK(has(texts[static_cast<std::size_t>(r)], "worker 1 is gone ("));
    CHECK(has(texts[static_cast<std::size_t>(r)], " at op "));
  }
}

TEST_CASE("NCCL: all ranks have it, in one version, each with a GPU of its own; else all say who has not") {
  const auto told = [](const std::function<void(NcclHere&, int)>& change) {
    return in_processes(3, [&](Ranks& ranks) -> std::string {
      NcclHere here{NcclLibrary::open(kLibrary), "", fmt::format("0000:0{}:00.0", ranks.rank()), "one machine"};
      change(here, ranks.rank());
      agree_on_nccl(ranks, here);
      return "agreed";
    });
  };
  CHECK(told([](NcclHere&, int) {}) == std::vector<std::string>(3, "agreed"));
  CHECK(told([](NcclHere& here, int rank) {
          here.gpu = "0000:01:00.0", here.machine = fmt::format("machine {}", rank);
        }) == std::vector<std::string>(3, "agreed"));
  for (const std::string& text : told([](NcclHere&here, int rank) {
         if (rank == 2) here.gpu = "0000:01:00.0";
       })) {
    CAPTURE(text);
    CHECK(text.starts_with("threw: run.transport: nccl: ranks 1 and 2 use the same GPU, at 0000:01:00.0; "));
    CHECK(has(text, "transport local or staged"));
  }
  for (const std::string& text : told([](NcclHere&here, int rank) {
         if (rank == 1) here.library = nullptr, here.missing = "NCCL was not found; looked for x";
       }))
    CHECK(text == "threw: run.transport: nccl: rank 1: NCCL was not found; looked for x");
  for (const std::string& text : told([](NcclHere&here, int rank) {
         if (rank == 0) return;
         ::setenv("FAKE_NCCL_VERSION", "21903", 1);
         here.library = NcclLibrary::open(kLibrary);
       }))
    CHECK(text.starts_with("threw: run.transport: nccl: rank 1 has NCCL 2.19.3, rank 0 has 2.28.9; "));
}

TEST_CASE("NCCL: rank 0 that can make no ids says so on all ranks") {
  const RunCase run({});
  const auto texts = in_processes(2, [&](Ranks& ranks) -> std::string {
    ::setenv("FAKE_NCCL_FAIL", "ncclGetUniqueId:2", 1);
    run_by_nccl(ranks, run, settings_of(run, 1));
    return "ran";
  });
  CHECK(texts ==
        std::vector<std::string>(2, "threw: run.transport: nccl: rank 0: ncclGetUniqueId: unhandled system error"));
}

TEST_CASE("NCCL: a library that is not there, too old or lacks a function is told with its place and a way out") {
  const auto error_of = [](const std::string& path) -> std::string {
    try {
      NcclLibrary::open(path);
    } catch (const NcclError& error) {
      return error.what();
    }
    return "opened";
  };
  const std::string none = error_of("/nonexistent/libnccl.so.2");
  CAPTURE(none);
  CHECK(none.starts_with("NCCL was not found; looked for /nonexistent/libnccl.so.2 ("));
  CHECK(has(none, "PIPEWRIGHT_NCCL"));
  const std::string poor = error_of(kPoorLibrary);
  CAPTURE(poor);
  CHECK(poor.starts_with("NCCL has no ncclAllReduce (" + kPoorLibrary + "); "));
  ::setenv("FAKE_NCCL_VERSION", "21304", 1);
  const std::string old = error_of(kLibrary);
  ::setenv("PIPEWRIGHT_NCCL", kLibrary.c_str(), 1);
  const GpuLibrary told = nccl_told();
  ::unsetenv("FAKE_NCCL_VERSION");
  CAPTURE(old);
  CHECK(old.starts_with("NCCL 2.13.4 at " + kLibrary + " is too old: "));
  CHECK((told.version == "2.13.4" && told.use.starts_with("nothing: too old")));
  CHECK(nccl_told().version == "2.28.9");
  CHECK(NcclLibrary::open()->path() == kLibrary);
  ::setenv("PIPEWRIGHT_NCCL", "/nonexistent/x", 1);
  CHECK((nccl_told().path.empty() && nccl_told().looked == std::vector<std::string>{"/nonexistent/x"}));
  ::unsetenv("PIPEWRIGHT_NCCL");
}

TEST_CASE("NCCL: collectives of members of one process are right, timed, and leave nothing behind") {
  const auto texts = in_processes(1, [&](Ranks&) -> std::string {
    std::string text;
    for (const int count : {2, 3}) {
      NcclMembers members(NcclLibrary::open(kLibrary), count, far_backend, host_queue, Bytes{1 << 20}, kTimeout);
      for (const DeviceWork work : {DeviceWork::NcclAllReduce, DeviceWork::NcclAllGather, DeviceWork::NcclSend})
        for (const std::int64_t bytes : {4096, 1 << 20}) {
          const NumericCheck check = members.check(work, bytes);
          if (!check.right()) text += fmt::format("{} members, {} bytes: off by {}; ", count, bytes, check.error);
          const Reading reading = nccl_watch(members, work, bytes)->time();
          if (!(reading.ns > 0 && reading.spent_ns >= reading.ns)) text += "no time; ";
        }
    }
    const int left = asked_of_library("fake_nccl_open"), aborted = asked_of_library("fake_nccl_aborted");
    return text + fmt::format("{} left, {} aborted, {} outside a group", left, aborted,
                              asked_of_library("fake_nccl_ungrouped"));
  });
  CHECK(texts == std::vector<std::string>{"0 left, 0 aborted, 0 outside a group"});
}

TEST_CASE("NCCL: what fails of a calibration is not timed, aborted, and the refusal of all that follows") {
  for (const std::string planned :
       {"ncclAllGather:7", "async of 0:7", "async of 1:7", "ncclCommInitRankConfig:1", ""}) {
    CAPTURE(planned);
    const auto texts = in_processes(1, [&](Ranks&) -> std::string {
      if (!planned.empty()) ::setenv("FAKE_NCCL_FAIL", planned.c_str(), 1);
      NcclAmong nccl(far_backend, host_queue, Bytes{4096}, kTimeout, [] { return NcclLibrary::open(kLibrary); });
      std::string told = nccl.refusal();
      try {
        const auto watch = nccl.watch(DeviceWork::NcclAllGather, 2, 4096);
        for (int i = 0; i < 20; ++i)
          static_cast<void>(watch->time());
      } catch (const NotTimed& error) {
        told += error.what();
      }
      const int left = asked_of_library("fake_nccl_open");
      const bool checked = nccl.check(DeviceWork::NcclAllReduce, 2, 4096).has_value();
      return fmt::format("{} left; {}; {}; {}", left, told == nccl.refusal() ? "same" : "other",
                         checked ? "checked" : "not checked", told);
    });
    if (planned.empty()) {
      CHECK(texts[0] == "2 left; same; checked; ");
      continue;
    }
    CAPTURE(texts[0]);
    CHECK(has(texts[0], "0 left; same; not checked; nccl"));
  }
}

TEST_CASE("NCCL: a collective of one process that fails is told, and all its members are aborted together") {
  for (const std::string planned : {"ncclAllGather:3", "async:8", "async of 0:4", "async of 1:4", "async of 2:4"}) {
    CAPTURE(planned);
    const auto texts = in_processes(1, [&](Ranks&) -> std::string {
      ::setenv("FAKE_NCCL_FAIL", planned.c_str(), 1);
      std::string told = "nothing";
      try {
        NcclMembers members(NcclLibrary::open(kLibrary), 3, far_backend, host_queue, Bytes{4096}, kTimeout);
        for (int i = 0; i < 10; ++i)
          static_cast<void>(members.time(DeviceWork::NcclAllReduce, 4096, 1));
      } catch (const NcclError& error) {
        told = error.what();
      }
      return fmt::format("{} left; {}", asked_of_library("fake_nccl_open"), told);
    });
    CHECK(has(texts[0], "0 left; nccl"));
    CHECK(has(texts[0], "planned failure"));
  }
}

TEST_CASE("NCCL: a hand-over is measured at rank 0, from device to device") {
  const auto texts = in_processes(3, [&](Ranks& ranks) -> std::string {
    const Handoff handoff = measure_handoff(ranks, far_backend, NcclLibrary::open(kLibrary), host_queue, kTimeout);
    const bool measured = handoff.send.fixed_ns > 0 || handoff.send.ns_per_unit > 0;
    return fmt::format("{} {} {}", measured ? "measured" : "nothing", handoff.first_read.fixed_ns,
                       asked_of_library("fake_nccl_open"));
  });
  CHECK(texts == std::vector<std::string>{"measured 0 0", "nothing 0 0", "nothing 0 0"});
}
