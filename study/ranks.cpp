#include "study/ranks.hpp"

#include <memory>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "io/console.hpp"
#include "io/text/names.hpp"
#include "kernels/nccl.hpp"
#include "runtime/rank_run.hpp"

namespace pipewright::study {
namespace {

// A process belongs to one run at most.
std::unique_ptr<Ranks>& ranks() {
  static std::unique_ptr<Ranks> joined;
  return joined;
}

std::string transport_name(RunTransport transport) {
  for (const auto& [name, known] : kNames<RunTransport>)
    if (known == transport) return std::string(name);
  return "";
}

bool is_of_processes(RunTransport transport) {
  return transport == RunTransport::Tcp || transport == RunTransport::Mpi || transport == RunTransport::Nccl;
}

// What carries words between the processes: MPI's where it is asked for, and where NCCL carries messages and mpirun has
// started them without a meeting point.
bool speaks_mpi(RunTransport transport, const Launch& launch) {
  return transport == RunTransport::Mpi ||
         (transport == RunTransport::Nccl && launch.by.starts_with("OMPI") && environment("MASTER_ADDR") == nullptr);
}

}  // namespace

void check_one_process(const Scenario& scenario) {
  const RunTransport transport = scenario.run.transport;
  PP_CHECK(!is_of_processes(transport));
  const std::optional<Launch> launch = runtime::launched();
  if (launch && launch->size > 1)
    throw InputError(
        Place{}, "run.transport",
        fmt::format("{} runs all workers in one process, and {} say that this is one of {}; use --transport {}, or "
                    "start one process without a launcher",
                    transport_name(transport), launch->by, launch->size,
                    launch->by.starts_with("OMPI") ? "mpi" : "tcp"));
}

Ranks* joined_ranks(const Scenario& scenario) {
  const RunTransport transport = scenario.run.transport;
  if (!is_of_processes(transport)) {
    check_one_process(scenario);
    return nullptr;
  }
  const std::optional<Launch> launch = runtime::launched();
  if (!launch && transport == RunTransport::Mpi)
    throw InputError(Place{}, "run.transport",
                     "mpi: no launcher has started this process; start it as `mpirun -n WORKERS pipewright "
                     "...`, or use --transport local");
  if (!launch)
    throw InputError(
        Place{}, "run.transport",
        fmt::format("{}: neither RANK and WORLD_SIZE nor another launcher's variables are set; start a "
                    "process per worker with torchrun or srun, or by hand with RANK, WORLD_SIZE, MASTER_ADDR and "
                    "MASTER_PORT (docs/how-it-works/running.md), or use --transport local",
                    transport_name(transport)));
  if (transport == RunTransport::Nccl) prepare_for_nccl();
  auto wire =
      speaks_mpi(transport, *launch) ? mpi_wire(*launch) : tcp_wire(*launch, meeting_point(), scenario.run.timeout);
  ranks() = std::make_unique<Ranks>(std::move(wire), scenario.run.timeout);
  return ranks().get();
}

void check_like_first(const Scenario& first, const Scenario& scenario) {
  const RunTransport one = first.run.transport, other = scenario.run.transport;
  if (one == other || (!is_of_processes(one) && !is_of_processes(other))) return;
  throw InputError(scenario.run.place, "run.transport",
                   fmt::format("{} here and {} in {}; scenarios of one command have all their workers in processes of "
                               "one transport, or none: say --set run.transport={} for all",
                               transport_name(other), transport_name(one), first.file,
                               transport_name(is_of_processes(one) ? one : other)));
}

void check_size(const Ranks& joined, const Scenario& scenario, int workers) {
  if (joined.size() != workers)
    throw InputError(scenario.run.place,
                     fmt::format("{} processes were started, and the plan has {} workers, a process each; start {}, or "
                                 "change the plan",
                                 joined.size(), workers, workers));
}

int with_memory_of_ranks(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception&) {
    if (ranks() == nullptr) throw;
    return with_memory_of_all(*ranks(), []() -> int { throw; });
  }
}

bool prints() {
  return ranks() == nullptr || ranks()->first();
}

bool reports_itself() {
  return prints() || !ranks()->answers(0);
}

std::string rank_name() {
  if (ranks() != nullptr) return ranks()->first() ? "" : fmt::format("rank {}: ", ranks()->rank());
  try {  // it has not come as far as joining
    const auto launch = runtime::launched();
    return launch && launch->rank > 0 ? fmt::format("rank {}: ", launch->rank) : "";
  } catch (const InputError&) {
    return "";
  }
}

int interrupted(const std::string& what) {
  note(interrupted_by() + ": " + rank_name() + what);
  return 128 + asked_to_end();
}

int leave_ranks(int status) noexcept {
  return ranks() == nullptr ? status : ranks()->leave(status, [] {
    note("error: " + rank_name() +
         "rank 0 is gone before it has said how the run ended, and with it what it had to show");
  });
}

}  // namespace pipewright::study
