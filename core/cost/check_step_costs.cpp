// Producer and checker are apart: nothing here is shared with step_costs.cpp.
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "core/cost/step_costs.hpp"

namespace pipewright::core {
namespace {

std::string check_tensor_flows(const StepCosts& costs, std::size_t expected) {
  const auto& [of_full, of_last, links] = *costs.tensor_flows;
  if (of_full.size() != expected || of_last.size() != expected) return "tensor flows: one per op of a chunk is needed";
  if (links.size() != at(costs.shape.data_parallel * costs.shape.seating().positions()))
    return "tensor flows: one ring per worker is needed";
  if (!costs.slices.empty() || !costs.loads.empty() || costs.together || costs.contention)
    return "tensor flows: not where ops take other times than their durations";
  double fastest = 0;  // bytes per second
  for (const bool last : {false, true})
    for (std::size_t i = 0; i < expected; ++i) {
      const auto& [time, bytes] = (last ? of_last : of_full)[i];
      if (time < Time{} || (last ? costs.duration_last : costs.duration)[i] < time || !(bytes >= 0) ||
          (time > Time{}) != (bytes > 0))
        return "tensor flows: less than nothing, or longer than their op";
      if (bytes > 0) fastest = std::max(fastest, bytes / static_cast<double>(time.value) * 1e9);
    }
  for (const auto& ring : links) {
    if (ring.empty()) return "tensor flows: a ring without links";
    for (const auto& [link, weight] : ring)
      if (link < 0 || at(link) >= costs.links.size() || !(weight > 0) ||
          weight * fastest > costs.links[at(link)].bandwidth.value * (1 + 1e-9))
        return "tensor flows: no such link, or more than it carries";
  }
  return {};
}

std::string check_durations(const StepCosts& costs) {
  const auto expected = static_cast<std::size_t>(costs.shape.chunks()) * kKinds;
  std::vector<const std::vector<Time>*> tables = {&costs.duration, &costs.duration_last};
  for (const StepCosts::Load& load : costs.loads)
    tables.push_back(&load.duration), tables.push_back(&load.duration_last);
  for (const StepCosts::Slice& slice : costs.slices)
    tables.push_back(&slice.duration);
  if (!costs.slices.empty() && costs.slices.size() != static_cast<std::size_t>(costs.shape.slices))
    return "slices: " + std::to_string(costs.slices.size()) + " tables for " + std::to_string(costs.shape.slices);
  if (!costs.slices.empty() && !costs.loads.empty()) return "slices: not with times by the busy workers";
  for (std::size_t i = 1; i < costs.loads.size(); ++i)
    if (costs.loads[i].active <= costs.loads[i - 1].active) return "loads: not in the order of the busy workers";
  for (const auto* table : tables) {
    if (table->size() != expected)
      return "durations: " + std::to_string(table->size()) + " entries for " + std::to_string(expected);
    for (std::size_t i = 0; i < expected; ++i)
      if ((*table)[i] < Time{})
        return "negative duration of virtual stage " + std::to_string(i / kKinds) + ", kind " +
               std::to_string(i % kKinds);
  }
  if (costs.together && !costs.together->parts.empty() && costs.together->parts.size() != expected)
    return "cells: parts of each op of a chunk are needed";
  for (std::size_t i = 0; costs.together && i < costs.together->parts.size(); ++i) {
    Time all;
    for (const StepCosts::Part& part : costs.together->parts[i]) {
      if (part.weights < Time{} || part.computing < part.weights || part.exchange < Time{})
        return "cells: a part takes negative time";
      all += part.computing + part.exchange;
    }
    if (all > costs.duration[i]) return "cells: parts take longer than their op";
  }
  if (costs.contention) {
    const auto& [computing, collectives] = *costs.contention;
    if (computing.size() != expected || collectives.size() != static_cast<std::size_t>(costs.shape.chunks()))
      return "contention: one entry per op of a chunk, and one per chunk, are needed";
    for (const std::vector<double>* slower : {&computing, &collectives})
      for (const double times : *slower)
        if (!(times >= 1 && times < HUGE_VAL)) return "contention: " + std::to_string(times) + " times as long";
  }
  if (costs.tensor_flows)
    if (std::string wrong = check_tensor_flows(costs, expected); !wrong.empty()) return wrong;
  if (!costs.settled.empty() && costs.settled.size() != expected * static_cast<std::size_t>(costs.shape.micro_batches))
    return "settled durations: one per op is needed";
  return {};
}

std::string check_message(const StepCosts& costs, const Message& message, const std::string& where) {
  if (message.occupancy < Time{} || message.latency < Time{} || message.bytes < Bytes{})
    return where + ": negative time or size";
  if (message.channel < -1 || message.channel >= costs.channels) return where + ": no such channel";
  if (message.route < -1 || message.route >= static_cast<std::int64_t>(costs.routes.size()))
    return where + ": no such route";
  if (message.channel < 0 && (message.occupancy > Time{} || message.latency > Time{} || message.route >= 0))
    return where + ": a message inside one worker takes time";
  return {};
}

std::string check_messages(const StepCosts& costs) {
  const ScheduleShape& shape = costs.shape;
  const int chunks = shape.chunks();
  std::set<std::pair<int, int>> joined;
  if (costs.first_message.size() != 2 * costs.edges.size()) return "first_message: two entries per edge are needed";
  std::size_t next = 0;
  for (std::size_t e = 0; e < costs.edges.size(); ++e) {
    const Edge edge = costs.edges[e];
    const std::string where = "edge " + std::to_string(e);
    if (edge.to >= chunks || edge.from >= edge.to) return where + ": no such pair of virtual stages";
    if (!joined.emplace(edge.from, edge.to).second) return where + ": joins two virtual stages once more";
    for (const std::size_t direction : {0, 1}) {
      if (costs.first_message[2 * e + direction] != next) return where + ": messages overlap or leave a gap";
      next += static_cast<std::size_t>(shape.data_parallel) *
              static_cast<std::size_t>(shape.seating().holders(edge.from)) *
              static_cast<std::size_t>(shape.seating().holders(edge.to));
      if (next > costs.messages.size() || next > costs.messages_last.size()) return where + ": messages are missing";
      for (std::size_t i = costs.first_message[2 * e + direction]; i < next; ++i)
        for (const auto* table : {&costs.messages, &costs.messages_last})
          if (std::string wrong = check_message(costs, (*table)[i], where); !wrong.empty()) return wrong;
    }
  }
  if (next != costs.messages.size() || next != costs.messages_last.size()) return "messages: more than the edges have";
  return {};
}

std::string check_routes(const StepCosts& costs) {
  for (const Link& link : costs.links)
    if (!(link.bandwidth.value > 0)) return "link " + link.name + ": bandwidth must be larger than 0";
  for (std::size_t i = 0; i < costs.routes.size(); ++i) {
    const std::string where = "route " + std::to_string(i);
    const Route& route = costs.routes[i];
    if (!(route.bandwidth.value >= 0) || route.latency < Time{} || (route.bandwidth.value == 0) != route.links.empty())
      return where + ": a rate without links, links without a rate, or a negative one";
    for (const int link : costs.routes[i].links)
      if (link < 0 || link >= static_cast<int>(costs.links.size())) return where + ": no such link";
  }
  return {};
}

std::string check_collective(const StepCosts& costs, const Collective& collective, const std::string& where) {
  Time sum;
  for (const CollectivePhase& phase : collective.phases) {
    if (phase.time < phase.latency || phase.latency < Time{} || !(phase.bytes >= 0)) return where + ": negative time";
    for (const auto& [link, weight] : phase.links) {
      if (link < 0 || link >= static_cast<int>(costs.links.size())) return where + ": no such link";
      const double room = costs.links[static_cast<std::size_t>(link)].bandwidth.value * (1 + 1e-9);
      if (!(weight > 0) || weight * phase.rate.value > room) return where + ": carries more than its links do";
    }
    sum += phase.time;
  }
  return sum == collective.time ? "" : where + ": time is not the sum of its phases";
}

std::string check_collectives(const StepCosts& costs) {
  const auto chunks = static_cast<std::size_t>(costs.shape.chunks());
  std::vector<const std::vector<std::vector<Time>>*> readies = {&costs.ready_before_end};
  if (!costs.ready_before_end_last.empty()) readies.push_back(&costs.ready_before_end_last);
  for (const StepCosts::Slice& slice : costs.slices)
    readies.push_back(&slice.ready_before_end);
  for (const auto* table : readies)
    if (table->size() != chunks) return "ready_before_end: one list per virtual stage is needed";
  const bool any = costs.shape.seating().any_reduced();
  if (costs.collectives.size() != (any ? chunks : 0)) return "collectives: one list per virtual stage is needed";
  for (VirtualStageId v = 0; v < costs.shape.chunks(); ++v) {
    const std::string where = "all-reduce of virtual stage " + std::to_string(v);
    const auto count = static_cast<std::size_t>(costs.shape.buckets_of(static_cast<int>(v)));
    for (const auto* table : readies) {
      const auto& ready = (*table)[v];
      if (ready.size() != count) return where + ": one ready time per bucket is needed";
      for (std::size_t j = 0; j < count; ++j)
        if (ready[j] < Time{} || (j > 0 && ready[j] > ready[j - 1])) return where + ": buckets are not in order";
    }
    if (!any) continue;
    const bool group = costs.shape.seating().reduced(static_cast<int>(v));
    if (costs.collectives[v].size() != (group ? count : 0)) return where + ": one collective per bucket is needed";
    for (const Collective& collective : costs.collectives[v])
      if (std::string wrong = check_collective(costs, collective, where); !wrong.empty()) return wrong;
  }
  for (const Collective& move : costs.moves)
    if (std::string wrong = check_collective(costs, move, "a move to a partner"); !wrong.empty()) return wrong;
  if (costs.host_copies.size() != (costs.shape.weights_on_host() ? 3 * chunks : 0))
    return "host_copies: three per virtual stage are needed where weights lie in the host's memory";
  for (const Collective& copy : costs.host_copies)
    if (std::string wrong = check_collective(costs, copy, "a copy to or from the host"); !wrong.empty()) return wrong;
  if (costs.tied.size() != costs.shape.tied.size()) return "tied: one all-reduce per table is needed";
  for (const Collective& table : costs.tied)
    if (std::string wrong = check_collective(costs, table, "the all-reduce of a tied table"); !wrong.empty())
      return wrong;
  if (!costs.shape.norm && costs.norm.time != Time{}) return "norm: no update waits for it";
  if (std::string wrong = check_collective(costs, costs.norm, "the all-reduce of the norm"); !wrong.empty())
    return wrong;
  const bool few = ((costs.shape.resharding && costs.shape.resharding->over > 0) ||
                    costs.shape.updated == UpdatedParts::BesideForwards) &&
                   !costs.gathers.empty();
  if (!costs.gathers.empty() && costs.gathers.size() != chunks) return "gathers: one per virtual stage is needed";
  if (costs.other_gathers.size() != (few ? chunks : 0)) return "other_gathers: one per virtual stage is needed";
  for (VirtualStageId v = 0; v < std::ssize(costs.gathers); ++v)
    if (std::string wrong =
            check_collective(costs, costs.gathers[v], "all-gather of virtual stage " + std::to_string(v));
        !wrong.empty())
      return wrong;
  return {};
}

}  // namespace

std::string validate(const StepCosts& costs) {
  for (const auto& check : {check_durations, check_messages, check_routes, check_collectives})
    if (std::string wrong = check(costs); !wrong.empty()) return wrong;
  return {};
}

}  // namespace pipewright::core
