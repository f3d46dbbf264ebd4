#include "core/cost/messages.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>

namespace pipewright::core {
namespace {

// Numbers channels (ordered pairs of workers) and their routes in the order of first use.
class Channels {
 public:
  explicit Channels(StepCosts& costs) : costs_(costs) {}

  // Message without bytes from one worker to another; its route comes from `route(from, to)`.
  Message connect(WorkerId from, WorkerId to, const std::function<Route(WorkerId, WorkerId)>& route) {
    Message message;
    if (from == to) return message;
    const auto key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
    const auto [entry, is_new] = known_.try_emplace(key);
    if (is_new) {
      entry->second.message.channel = costs_.channels++;
      Route way = route(from, to);
      entry->second.rate = way.bandwidth;
      entry->second.message.latency = way.latency;
      if (!way.links.empty()) {
        entry->second.message.route = static_cast<std::int32_t>(costs_.routes.size());
        costs_.routes.push_back(std::move(way));
      }
    }
    rate_ = entry->second.rate;
    return entry->second.message;
  }

  // The last connected message with what is sent by it.
  Message loaded(Message message, const SentShare& sent) const {
    message.bytes = sent.bytes;
    if (message.channel < 0) return message;
    if (rate_.value > 0) message.occupancy = checked_sum(transfer_time(sent.bytes, rate_), sent.slower);
    message.latency = checked_sum(message.latency, sent.later);
    return message;
  }

 private:
  struct Known {
    Message message;
    Bandwidth rate;
  };
  StepCosts& costs_;
  std::unordered_map<std::uint64_t, Known> known_;  // looked up only, never walked: its order is nowhere visible
  Bandwidth rate_;
};

// `skips: direct`: pairs of chunks that share a tensor, neighbours first. The distinct users' chunks of each tensor
// give one entry each, so that a tensor counts once per edge.
EdgeTraffic direct_traffic(const Plan& plan, const Model& model, const std::vector<Bytes>& tensor) {
  std::vector<int> chunk_of(model.layers.size());
  for (VirtualStageId v = 0; v < std::ssize(plan.layers); ++v)
    for (LayerId i = plan.layers[v].begin; i < plan.layers[v].end; ++i)
      chunk_of[static_cast<std::size_t>(i)] = static_cast<int>(v);
  struct Use {
    bool skips;
    int from, to;
    LayerId tensor;
    auto operator<=>(const Use&) const = default;
  };
  std::vector<Use> uses;
  for (LayerId user = 0; user < std::ssize(model.layers); ++user)
    for (const LayerId producer : model.layers[user].inputs)
      if (const int from = chunk_of[static_cast<std::size_t>(producer)], to = chunk_of[user]; from != to)
        uses.push_back({to > from + 1, from, to, producer});
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  EdgeTraffic traffic;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Use& use = uses[i];
    if (i == 0 || uses[i - 1].from != use.from || uses[i - 1].to != use.to) {
      traffic.edges.push_back({static_cast<std::uint16_t>(use.from), static_cast<std::uint16_t>(use.to)});
      traffic.bytes.push_back({});
    }
    traffic.bytes.back() = checked_sum(traffic.bytes.back(), tensor[static_cast<std::size_t>(use.tensor)]);
  }
  return traffic;
}

// `skips: hop`: neighbours, unless no tensor crosses the cut between them.
EdgeTraffic hop_traffic(const Plan& plan, const StepPricer::TensorsOverCuts& over) {
  EdgeTraffic traffic;
  for (int e = 0; e + 1 < plan.chunks(); ++e) {
    const auto cut = static_cast<std::size_t>(plan.layers[static_cast<std::size_t>(e)].end);
    if (over.count[cut] == Bytes{}) continue;
    traffic.edges.push_back({static_cast<std::uint16_t>(e), static_cast<std::uint16_t>(e + 1)});
    traffic.bytes.push_back(over.bytes[cut]);
  }
  return traffic;
}

// The table of messages has an entry for every pair of replicas of neighbouring stages.
constexpr std::int64_t kMostMessages = std::int64_t{1} << 23;  // 320 MB each for full and last micro-batches
}  // namespace

StepPricer::TensorsOverCuts tensors_over_cuts(const Model& model, const std::vector<Bytes>& tensor) {
  return {bytes_over_cuts(model, tensor), bytes_over_cuts(model, std::vector<Bytes>(tensor.size(), Bytes{1}))};
}

EdgeTraffic edge_traffic(const Plan& plan, const Model& model, const std::vector<Bytes>& tensor,
                         const StepPricer::TensorsOverCuts& over) {
  return plan.skips == Skips::Direct ? direct_traffic(plan, model, tensor) : hop_traffic(plan, over);
}

void check_pairs(const StepCosts& costs, const Place& replicas) {
  std::int64_t messages = 0;
  for (const Edge& edge : costs.edges) {
    const Seating seating = costs.shape.seating();
    messages += std::int64_t{2} * seating.holders(edge.from) * seating.holders(edge.to) * seating.copies;
    if (messages > kMostMessages)
      throw InputError(replicas, "plan.replicas",
                       "neighbouring stages have more than " + std::to_string(kMostMessages) +
                           " pairs of replicas over all copies; use fewer replicas, e.g. whole copies with "
                           "plan.data_parallel");
  }
}

SentShare Sending::operator()(Bytes bytes, DeviceId from, DeviceId to) {
  if (bytes == Bytes{}) return {};
  SentShare share{{(bytes.value + degree_ - 1) / degree_}, {}, {}};
  if (const Way& by = way(from, to); by.by_size) {
    const MessageCurve& curve = *cluster_.device.messages;
    const double size = static_cast<double>(share.bytes.value), nominal = size / by.rate;
    const double us = by.inside ? message_us(curve, size, by.rate * 1e6)
                                : curve.start + (nominal / cluster_.network->share + by.latency) *
                                                    std::pow(2, cluster_.network->contention);
    const double on_channel = std::max(nominal, us - curve.start - by.latency);
    share.slower = Time{rounded((on_channel - nominal) * 1e3, "the time of a message")};
    share.later = Time{rounded(std::max(0.0, us - on_channel - by.latency) * 1e3, "the time of a message")};
  }
  if (degree_ > 1) share.later = checked_sum(share.later, group_of(to).gather(bytes));
  return share;
}

const Sending::Way& Sending::way(DeviceId from, DeviceId to) {
  const auto [entry, is_new] = ways_.try_emplace({from, to});
  if (is_new && cluster_.device.messages && from != to) {
    const Route route = topology_.route(from, to);
    Way& found = entry->second;
    found.rate = route.bandwidth.value / 1e6, found.latency = static_cast<double>(route.latency.value) / 1e3;
    found.inside = topology_.way(from, to) == Topology::Way::InsideNode;
    found.by_size = found.rate > 0 && (!found.inside || cluster_.links.kind == cluster_.device.messages->links);
  }
  return entry->second;
}

const AllReduceGroup& Sending::group_of(DeviceId lead) {
  if (const auto found = groups_.find(lead); found != groups_.end()) return found->second;
  std::vector<DeviceId> members;
  for (int member = 0; member < degree_; ++member)
    members.push_back(lead + member);
  return groups_.emplace(lead, AllReduceGroup(std::move(members), topology_, cluster_.devices_per_node, &cluster_))
      .first->second;
}

void lay_messages(StepCosts& costs, const std::vector<Bytes>& full, const std::vector<Bytes>& last,
                  const std::function<Route(WorkerId, WorkerId)>& route,
                  const std::function<SentShare(Bytes, WorkerId, WorkerId)>& sent) {
  const Seating seating = costs.shape.seating();
  const int positions = seating.positions();
  Channels channels(costs);
  for (std::size_t e = 0; e < costs.edges.size(); ++e) {
    const auto [from, to] = costs.edges[e];
    const std::vector<PositionId> of_from = places(seating, from), of_to = places(seating, to);
    const std::size_t joined = at(seating.joined(from, to));
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      costs.first_message.push_back(static_cast<std::uint32_t>(costs.messages.size()));
      for (CopyId copy = 0; copy < seating.copies; ++copy)
        for (std::size_t a = 0; a < of_from.size(); ++a)
          for (std::size_t b = 0; b < of_to.size(); ++b) {
            Message message, message_last;
            if (a % joined == b % joined) {  // else no micro-batch goes from one to the other
              WorkerId sender = copy * positions + of_from[a];
              WorkerId receiver = copy * positions + of_to[b];
              if (direction == Direction::Backward) std::swap(sender, receiver);
              message = channels.connect(sender, receiver, route);
              const SentShare whole = sent(full[e], sender, receiver);
              message_last = channels.loaded(message, last[e] == full[e] ? whole : sent(last[e], sender, receiver));
              message = channels.loaded(message, whole);
            }
            costs.messages.push_back(message);
            costs.messages_last.push_back(message_last);
          }
    }
  }
}

void add_handing_over(StepCosts& costs, const CostSource& source, const std::vector<Bytes>& full,
                      const std::vector<Bytes>& last) {
  const auto add = [&](std::vector<Time>& durations, int chunk, Direction direction, Time more) {
    const auto row = static_cast<std::size_t>(chunk) * kKinds;
    if (direction == Direction::Forward) {
      durations[row + at(Kind::F)] += more;
      return;
    }
    for (const Kind kind : {Kind::B, Kind::BW})
      durations[row + at(kind)] += more;
  };
  std::vector<std::vector<Time>*> of_full = {&costs.duration}, of_last = {&costs.duration_last};
  for (StepCosts::Load& load : costs.loads)
    of_full.push_back(&load.duration), of_last.push_back(&load.duration_last);
  for (std::size_t e = 0; e < costs.edges.size(); ++e)
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      const bool forward = direction == Direction::Forward;
      const int sender = forward ? costs.edges[e].from : costs.edges[e].to;
      const int receiver = forward ? costs.edges[e].to : costs.edges[e].from;
      const bool apart = costs.shape.stage_of(sender) != costs.shape.stage_of(receiver);
      for (const auto* const tables : {&of_full, &of_last})
        for (auto* const durations : *tables) {
          const Bytes bytes = tables == &of_full ? full[e] : last[e];
          add(*durations, sender, direction, source.sending(bytes));
          if (apart) add(*durations, receiver, direction, source.first_reading(bytes));
        }
    }
  for (auto* const messages : {&costs.messages, &costs.messages_last})
    for (Message& message : *messages)
      if (message.channel >= 0) message.latency += source.handing_over();
}

}  // namespace pipewright::core
