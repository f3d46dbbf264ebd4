// Do transfers meet on a link? Where they do, the static engine's answer is not exact.
#include <algorithm>

#include "sim/simulate.hpp"

namespace pipewright {
namespace {

struct Use {
  Time start, end;
  bool operator<(const Use& other) const { return start < other.start; }
};

// Links that a collective passes in any of its phases, each once.
std::vector<std::int32_t> links_of(const Collective& collective) {
  std::vector<std::int32_t> links;
  for (const CollectivePhase& phase : collective.phases)
    for (const auto& [link, weight] : phase.links)
      links.push_back(link);
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  return links;
}

// Every interval in which something occupies a link, by link. A collective occupies its links from its start to its
// end.
std::vector<std::vector<Use>> link_uses(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs) {
  std::vector<std::vector<Use>> uses(costs.links.size());
  for (const Transfer& transfer : timeline.transfers) {
    if (transfer.start == transfer.sent) continue;
    const CopyId copy = transfer.from / static_cast<int>(schedule.positions.size());
    const Message& message = costs.message(transfer.edge, transfer.direction, copy, transfer.micro_batch);
    if (message.route < 0) continue;
    for (const int link : costs.routes[static_cast<std::size_t>(message.route)].links)
      uses[static_cast<std::size_t>(link)].push_back({transfer.start, transfer.sent});
  }
  const ScheduleShape& shape = schedule.shape;
  for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
    const auto& ops = schedule.positions[worker % schedule.positions.size()].collective;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      // All members have the same span: count the collective once, at the first member.
      const int v = ops[i].virtual_stage;
      if (worker != static_cast<std::size_t>(position_of(shape, v, 0))) continue;
      const Span span = timeline.workers[worker].collective[i];
      if (span.start == span.end) continue;
      for (const int link : links_of(costs.collectives[static_cast<std::size_t>(v)][ops[i].bucket]))
        uses[static_cast<std::size_t>(link)].push_back({span.start, span.end});
    }
  }
  return uses;
}

}  // namespace

int first_shared_link(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs) {
  auto uses = link_uses(timeline, schedule, costs);
  for (std::size_t link = 0; link < uses.size(); ++link) {
    auto& of_link = uses[link];
    if (!std::is_sorted(of_link.begin(), of_link.end())) std::stable_sort(of_link.begin(), of_link.end());
    for (std::size_t i = 1; i < of_link.size(); ++i)
      if (of_link[i].start < of_link[i - 1].end) return static_cast<int>(link);
  }
  return -1;
}

}  // namespace pipewright
