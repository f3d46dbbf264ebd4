// Do transfers meet on a link? Where they do, the static engine's answer is not exact.
#include <algorithm>

#include "sim/simulate.hpp"

namespace pipewright::sim {
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

// Calls `use(link, start, end)` for every interval in which something occupies a link. A collective occupies its links
// from its start to its end.
template <class Use>
void for_each_use(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs, const Use& use) {
  for (const Transfer& transfer : timeline.transfers) {
    if (transfer.start == transfer.sent) continue;
    const CopyId copy = transfer.from / static_cast<int>(schedule.positions.size());
    const Message& message = costs.message(transfer.edge, transfer.direction, copy, transfer.micro_batch);
    if (message.route < 0) continue;
    for (const int link : costs.routes[static_cast<std::size_t>(message.route)].links)
      use(static_cast<std::size_t>(link), transfer.start, transfer.sent);
  }
  for (std::size_t w = 0; costs.tensor_flows && w < timeline.workers.size(); ++w) {
    const auto& ops = schedule.positions[w % schedule.positions.size()].compute;
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (const Time sent = costs.sent_by(ops[i]); sent > Time{})
        for (const auto& [link, weight] : costs.tensor_flows->rings[w].links) {
          const auto [start, end] = timeline.workers[w].compute[i];
          use(static_cast<std::size_t>(link), start, start + (sent - Time{sent.value / 2}));
          use(static_cast<std::size_t>(link), end - Time{sent.value / 2}, end);
        }
  }
  const Seating seating = schedule.seating();
  for (std::size_t position = 0; position < schedule.positions.size(); ++position) {
    for (StreamId s = 0; s < kStreams.size(); ++s) {
      const auto& ops = schedule.positions[position].communication[s];
      for (std::size_t i = 0; i < ops.size(); ++i) {
        // All members have the same span: count the collective once, at the first holder in the first copy.
        if (!kStreams[s].alone && position != at(seating.position(ops[i].virtual_stage, 0))) continue;
        const CopyId copies = kStreams[s].alone ? schedule.shape.data_parallel : 1;
        for (CopyId copy = 0; copy < copies; ++copy) {
          const Span span = timeline.workers[at(copy) * schedule.positions.size() + position].communication[s][i];
          if (span.start == span.end) continue;
          for (const int link : links_of(costs.collective(ops[i], copy)))
            use(static_cast<std::size_t>(link), span.start, span.end);
        }
      }
    }
  }
}

}  // namespace

int first_shared_link(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs) {
  // Counted first, so that the intervals of all links lie in one array.
  std::vector<std::size_t> first(costs.links.size() + 1, 0);
  for_each_use(timeline, schedule, costs, [&](std::size_t link, Time, Time) { ++first[link + 1]; });
  for (std::size_t link = 0; link < costs.links.size(); ++link)
    first[link + 1] += first[link];
  std::vector<Use> uses(first.back());
  std::vector<std::size_t> next(first.begin(), first.end() - 1);
  for_each_use(timeline, schedule, costs, [&](std::size_t link, Time start, Time end) {
    uses[next[link]++] = {start, end};
  });
  for (std::size_t link = 0; link < costs.links.size(); ++link) {
    const auto begin = uses.begin() + static_cast<std::ptrdiff_t>(first[link]);
    const auto end = uses.begin() + static_cast<std::ptrdiff_t>(first[link + 1]);
    if (!std::is_sorted(begin, end)) std::stable_sort(begin, end);
    for (auto use = begin; use != end && use + 1 != end; ++use)
      if ((use + 1)->start < use->end) return static_cast<int>(link);
  }
  return -1;
}

}  // namespace pipewright::sim
