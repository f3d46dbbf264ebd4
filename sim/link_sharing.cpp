// Do transfers meet on a link? Where they do, the static engine's answer is not exact.
#include <algorithm>
#include <array>
#include <span>

#include "core/cost/tensor_flows.hpp"
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

// Calls `use(link, start, end)` for every interval in which a message or a collective occupies a link, the latter from its
// start to its end.
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
  for (PositionId position = 0; position < std::ssize(schedule.positions); ++position) {
    for (StreamId s = 0; s < kStreams.size(); ++s) {
      const auto& ops = schedule.positions[position].communication[s];
      for (std::size_t i = 0; i < ops.size(); ++i) {
        // All members have the same span: count the collective once, at the first holder in the first copy.
        const bool alone = kStreams[s].among == Among::Worker;
        if (!alone && position != first_member(schedule.shape, ops[i])) continue;
        const CopyId copies = alone ? schedule.shape.data_parallel : 1;
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

// Flows of ops (StepCosts::tensor_flows). Those of a worker follow one another, on all links of its ring, and there are as many
// as ops: looked up in its times, not listed.
class OpFlows {
 public:
  OpFlows(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs)
      : timeline_(timeline), schedule_(schedule), costs_(costs), on_(costs.tensor_flows ? costs.links.size() : 0) {
    for (WorkerId w = 0; costs.tensor_flows && at(w) < timeline.workers.size(); ++w)
      for (const auto& [link, weight] : costs.tensor_flows->links[at(w)])
        on_[at(link)].push_back(w);
  }

  bool meet_on(std::size_t link, std::span<const Use> others) const {
    if (on_.empty()) return false;
    const std::vector<WorkerId>& workers = on_[link];
    for (const WorkerId worker : workers)
      for (const Use& other : others)
        if (runs_within(worker, other)) return true;
    for (const WorkerId worker : workers)
      for (std::size_t i = 0; workers.size() > 1 && i < spans(worker).size(); ++i)
        for (const Use& half : halves(worker, i))
          for (const WorkerId other : workers)
            if (other > worker && half.start < half.end && runs_within(other, half)) return true;
    return false;
  }

 private:
  const std::vector<Span>& spans(WorkerId worker) const { return timeline_.workers[at(worker)].compute; }
  std::array<Use, 2> halves(WorkerId worker, std::size_t i) const {
    const Time sent = costs_.sent_by(schedule_.lane_of(worker).compute[i]).time;
    const auto [start, end] = spans(worker)[i];
    return {Use{start, start + first_half(sent)}, Use{end - second_half(sent), end}};
  }
  bool runs_within(WorkerId worker, const Use& time) const {
    const std::vector<Span>& all = spans(worker);
    const auto from = std::partition_point(all.begin(), all.end(), [&](Span span) { return span.end <= time.start; });
    for (auto span = from; span != all.end() && span->start < time.end; ++span)
      for (const Use& half : halves(worker, at(span - all.begin())))
        if (half.start < time.end && time.start < half.end && half.start < half.end) return true;
    return false;
  }

  const Timeline& timeline_;
  const Schedule& schedule_;
  const StepCosts& costs_;
  std::vector<std::vector<WorkerId>> on_;  // by link
};

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
  const OpFlows flows(timeline, schedule, costs);
  for (std::size_t link = 0; link < costs.links.size(); ++link) {
    const auto begin = uses.begin() + static_cast<std::ptrdiff_t>(first[link]);
    const auto end = uses.begin() + static_cast<std::ptrdiff_t>(first[link + 1]);
    if (!std::is_sorted(begin, end)) std::stable_sort(begin, end);
    for (auto use = begin; use != end && use + 1 != end; ++use)
      if ((use + 1)->start < use->end) return static_cast<int>(link);
    if (flows.meet_on(link, {begin, end})) return static_cast<int>(link);
  }
  return -1;
}

}  // namespace pipewright::sim
