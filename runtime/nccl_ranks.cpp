#include "runtime/nccl_ranks.hpp"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "runtime/rank_home.hpp"

namespace pipewright::runtime {
namespace {

// Of all ranks, at rank 0: "" or why they cannot run together.
std::string verdict(const std::vector<Blob>& all) {
  std::map<std::pair<std::string, std::string>, std::size_t> by_gpu;
  std::string first_version;
  for (std::size_t r = 0; r < all.size(); ++r) {
    BytesIn in(all[r]);
    const std::string missing = in.text(), version = in.text(), gpu = in.text(), machine = in.text();
    if (!missing.empty()) return (r == 0 ? "" : fmt::format("rank {}: ", r)) + missing;
    if (r == 0) first_version = version;
    if (version != first_version)
      return fmt::format(
          "rank {} has NCCL {}, rank 0 has {}; NCCL talks to its own version only: install the same, or name it in "
          "PIPEWRIGHT_NCCL",
          r, version, first_version);
    const auto [found, added] = by_gpu.try_emplace({machine, gpu}, r);
    if (!added)
      return fmt::format(
          "ranks {} and {} use the same GPU, at {}; NCCL takes one process per GPU: name as many GPUs as processes of "
          "the machine (--gpus 0,1), give every process its LOCAL_RANK, or cut one GPU between threads with transport "
          "local or staged",
          found->second, r, gpu);
  }
  return "";
}

}  // namespace

NcclHere nccl_here(std::string gpu) {
  NcclHere here{nullptr, "", std::move(gpu), home().boot};
  try {
    here.library = NcclLibrary::open();
  } catch (const NcclError& error) {
    here.missing = error.what();
  }
  return here;
}

void check_for_nccl(const RunPlan& run, const Place& place) {
  if (run.whole.empty()) return;
  throw InputError(place, "training.zero",
                   fmt::format("{} gathers weights while gradients are reduced, and run.transport nccl needs one order "
                               "of both on all ranks; use 0 or 1, or transport tcp or mpi",
                               run.zero));
}

void agree_on_nccl(Ranks& ranks, const NcclHere& here) {
  const std::string version = here.library == nullptr ? "" : here.library->dotted();
  const std::vector<Blob> all =
      ranks.gathered(BytesOut().put(here.missing).put(version).put(here.gpu).put(here.machine).bytes());
  const Blob told = ranks.broadcast(BytesOut().put(ranks.first() ? verdict(all) : std::string()).bytes());
  if (const std::string why = BytesIn(told).text(); !why.empty())
    throw InputError(Place{}, "run.transport", "nccl: " + why);
}

AroundWire by_nccl(Ranks& ranks, const RunPlan& run, std::shared_ptr<const NcclLibrary> library, NcclQueueMaker queue,
                   double timeout_s) {
  std::vector<NcclId> ids(ranks.first() ? nccl_groups(run).size() : 0);
  std::string failed;
  try {
    for (NcclId& id : ids)
      id = library->id();
  } catch (const NcclError& error) {
    failed = error.what();
  }
  const Blob told = ranks.broadcast(BytesOut().put(failed).put(ids).bytes());
  BytesIn in(told);
  if (const std::string why = in.text(); !why.empty())
    throw InputError(Place{}, "run.transport", "nccl: rank 0: " + why);
  ids = in.list<NcclId>();
  return [self = ranks.rank(), &run, library = std::move(library), ids = std::move(ids), queue = std::move(queue),
          timeout_s](std::unique_ptr<Transport> words) {
    return nccl_transport(std::move(words), run, self, library, ids, queue, timeout_s);
  };
}

}  // namespace pipewright::runtime
