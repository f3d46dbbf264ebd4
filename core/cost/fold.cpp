#include "core/cost/fold.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/cost/cost_model.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/cost/table_exchange.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/tied_tables.hpp"

namespace pipewright::core {
namespace {

using Tokens = std::vector<std::int64_t>;  // what is equal for copies, components or links that are alike

// Pairs of positions of one copy that exchange messages, in both directions.
std::vector<std::pair<PositionId, PositionId>> neighbours(const Plan& plan) {
  const Seating seating = plan.seating();
  std::vector<std::pair<VirtualStageId, VirtualStageId>> chunks;
  for (int v = 0; v + 1 < plan.chunks(); ++v)
    chunks.emplace_back(v, v + 1);
  if (plan.skips == Skips::Direct)  // every stage with every other
    for (StageId a = 0; a < plan.stages; ++a)
      for (StageId b = 0; b < plan.stages; ++b)
        chunks.emplace_back(seating.chunk_of(a, 0), seating.chunk_of(b, 0));
  if (plan.facts.uses_partner)
    for (StageId k = 0; k < plan.stages; ++k)
      chunks.emplace_back(seating.chunk_of(k, 0), seating.chunk_of(seating.opposite(k), 0));
  std::vector<std::pair<PositionId, PositionId>> pairs;
  for (const auto& [from, to] : chunks) {
    const std::vector<PositionId> of_from = places(seating, from), of_to = places(seating, to);
    const std::size_t joined = at(seating.joined(from, to));
    for (std::size_t a = 0; a < of_from.size(); ++a)
      for (std::size_t b = a % joined; b < of_to.size(); b += joined) {
        if (of_from[a] == of_to[b]) continue;
        pairs.emplace_back(of_from[a], of_to[b]);
        pairs.emplace_back(of_to[b], of_from[a]);
      }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

// What the all-reduces of all stages load: by link, (phase, weight) in the order of the phases.
class Loads {
 public:
  Loads(const Plan& plan, const CostModel& cost) : first_(at(cost.topology().link_count()) + 1) {
    std::vector<StateExchange> exchanges;
    for (StageId k = 0; k < plan.stages; ++k)
      exchanges.emplace_back(plan, k, cost);
    std::vector<TableExchange> tables;
    for (const TiedTable& table : tied_tables(plan, cost.scenario().model))
      tables.emplace_back(plan, table, cost);
    std::vector<const CollectivePhase*> phases;
    const auto add = [&phases](const AllReduceGroup& group) {
      for (const auto* algorithm : group.algorithms())
        for (const CollectivePhase& phase : *algorithm)
          phases.push_back(&phase);
    };
    for (const StateExchange& exchange : exchanges)
      std::ranges::for_each(exchange.groups(), add);
    for (TableExchange& table : tables)
      add(table.group());
    for (const CollectivePhase* phase : phases)
      for (const auto& [link, weight] : phase->links)
        ++first_[at(link) + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    loads_.resize(first_.back());
    std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
    for (std::size_t i = 0; i < phases.size(); ++i)
      for (const auto& [link, weight] : phases[i]->links)
        loads_[next[at(link)]++] = {static_cast<std::int64_t>(i), std::bit_cast<std::int64_t>(weight)};
  }
  std::int64_t count(int link) const { return first_[at(link) + 1] - first_[at(link)]; }
  void append(int link, Tokens& tokens) const {
    for (std::uint32_t i = first_[at(link)]; i < first_[at(link) + 1]; ++i)
      tokens.insert(tokens.end(), {loads_[i].first, loads_[i].second});
  }

 private:
  std::vector<std::uint32_t> first_;
  std::vector<std::pair<std::int64_t, std::int64_t>> loads_;
};

class Folding {
 public:
  Folding(const Plan& plan, const CostModel& cost, Alike alike)
      : plan_(plan),
        cluster_(cost.scenario().cluster),
        topology_(cost.topology()),
        pairs_(neighbours(plan)),
        positions_(plan.positions()),
        on_links_(alike == Alike::OnLinks) {
    if (!on_links_) return;
    loads_.emplace(plan, cost);
    fold_.link_like.assign(at(topology_.link_count()), -1);
    local_ = fold_.link_like;
  }

  std::shared_ptr<const Fold> run() {
    fold_.like.resize(at(plan_.copies()));
    for (const std::vector<CopyId>& component : components())
      take(component);
    if (std::ssize(fold_.copies) == plan_.copies()) return nullptr;
    if (on_links_) take_links_without_messages();
    sort_copies();
    sort_links();
    return std::make_shared<const Fold>(std::move(fold_));
  }

 private:
  // Kept copies and links, in the order in which a component like theirs has them.
  struct Kept {
    std::vector<std::int32_t> copies, links;
  };

  DeviceId device(CopyId copy, PositionId position) const { return plan_.device[copy * positions_ + position]; }

  // Calls use(link) for what the messages of a copy pass, in the order of its pairs.
  void for_each_link(CopyId copy, const auto& use) {
    for (const auto& [from, to] : pairs_) {
      topology_.route(device(copy, from), device(copy, to), route_);
      for (const int link : route_.links)
        use(link);
    }
  }

  // Copies that messages over common links join, by their first copy; each ascending.
  std::vector<std::vector<CopyId>> components() {
    std::vector<CopyId> parent(at(plan_.copies()));
    std::iota(parent.begin(), parent.end(), 0);
    const auto root = [&](CopyId copy) {
      while (parent[at(copy)] != copy)
        copy = parent[at(copy)] = parent[at(parent[at(copy)])];
      return copy;
    };
    if (on_links_) {
      std::vector<CopyId> user(at(topology_.link_count()), -1);
      for (CopyId copy = 0; copy < plan_.copies(); ++copy)
        for_each_link(copy, [&](int link) {
          if (const CopyId first = std::exchange(user[at(link)], copy); first >= 0 && first != copy) {
            const CopyId a = root(first), b = root(copy);
            parent[at(std::max(a, b))] = std::min(a, b);
          }
        });
    }
    std::vector<std::vector<CopyId>> by_root(parent.size());
    for (CopyId copy = 0; copy < plan_.copies(); ++copy)
      by_root[at(root(copy))].push_back(copy);
    std::erase_if(by_root, [](const auto& component) { return component.empty(); });
    return by_root;
  }

  void take(const std::vector<CopyId>& component) {
    Tokens tokens;
    links_.clear();
    for (const CopyId copy : component)
      describe(copy, tokens);
    for (const int link : links_)
      local_[at(link)] = -1;
    const auto known = known_.find(tokens);
    if (known != known_.end() && fold_.copies.size() > 1) return are_like(component, known->second);
    Kept kept;
    for (const CopyId copy : component) {
      kept.copies.push_back(static_cast<std::int32_t>(fold_.copies.size()));
      fold_.like[at(copy)] = kept.copies.back();
      fold_.copies.push_back(copy);
    }
    for (const int link : links_)
      kept.links.push_back(keep_link(link));
    known_.try_emplace(std::move(tokens), std::move(kept));
  }

  void are_like(const std::vector<CopyId>& component, const Kept& kept) {
    for (std::size_t i = 0; i < component.size(); ++i)
      fold_.like[at(component[i])] = kept.copies[i];
    for (std::size_t i = 0; i < links_.size(); ++i)
      is_like(links_[i], kept.links[i]);
  }

  std::int32_t keep_link(int link) {
    fold_.links.push_back(link);
    fold_.names.push_back(link);
    return fold_.link_like[at(link)] = static_cast<std::int32_t>(fold_.links.size()) - 1;
  }
  void is_like(int link, std::int32_t kept) {
    fold_.link_like[at(link)] = kept;
    fold_.names[at(kept)] = std::min(fold_.names[at(kept)], link);
  }

  // A copy as seen from inside its component; links that it is the first to pass are added to `links_`.
  void describe(CopyId copy, Tokens& tokens) {
    for (PositionId position = 0; position < positions_; ++position)
      describe_worker(device(copy, position), tokens);
    for (const auto& [from, to] : pairs_) {
      const DeviceId sender = device(copy, from), receiver = device(copy, to);
      tokens.push_back(static_cast<std::int64_t>(topology_.way(sender, receiver)));
      if (!on_links_) continue;
      topology_.route(sender, receiver, route_);
      for (const int link : route_.links)
        describe_link(link, tokens);
    }
  }

  void describe_link(int link, Tokens& tokens) {
    std::int32_t& local = local_[at(link)];
    const bool seen = local >= 0;
    if (!seen) local = static_cast<std::int32_t>(links_.size());
    tokens.push_back(local);
    if (seen) return;
    links_.push_back(link);
    describe_new(link, tokens);
  }
  void describe_new(int link, Tokens& tokens) const {
    tokens.push_back(static_cast<std::int64_t>(topology_.place(link).kind));
    tokens.push_back(loads_->count(link));
    loads_->append(link, tokens);
  }

  // Its class; where the receivers of a tensor gather it, how their group lies over nodes and leaf switches.
  void describe_worker(DeviceId lead, Tokens& tokens) const {
    if (cluster_.classes() > 1) tokens.push_back(cluster_.class_of(lead));
    if (!plan_.scatter_gather) return;
    for (int i = 0; i < plan_.tensor_parallel; ++i)
      tokens.push_back(static_cast<std::int64_t>(topology_.way(lead + i, lead + (i + 1) % plan_.tensor_parallel)));
  }

  // Of one kind and load, one each.
  void take_links_without_messages() {
    std::map<Tokens, std::int32_t> known;
    for (int link = 0; link < topology_.link_count(); ++link) {
      if (fold_.link_like[at(link)] >= 0 || loads_->count(link) == 0) continue;
      Tokens tokens;
      describe_new(link, tokens);
      const auto found = known.find(tokens);
      if (found == known.end())
        known.emplace(std::move(tokens), keep_link(link));
      else
        is_like(link, found->second);
    }
    if (fold_.links.empty() && topology_.link_count() > 0) keep_link(0);  // a cluster with links still has some
  }

  void sort_copies() {
    const std::vector<std::int32_t> rank = ranks(fold_.copies);
    std::sort(fold_.copies.begin(), fold_.copies.end());
    for (std::int32_t& like : fold_.like)
      like = rank[at(like)];
  }

  void sort_links() {
    const std::vector<std::int32_t> rank = ranks(fold_.names);
    std::vector<std::int32_t> links(fold_.links.size());
    for (std::size_t i = 0; i < links.size(); ++i)
      links[at(rank[i])] = fold_.links[i];
    fold_.links = std::move(links);
    std::sort(fold_.names.begin(), fold_.names.end());
    for (std::int32_t& like : fold_.link_like)
      if (like >= 0) like = rank[at(like)];
  }

  // [i]: the place of values[i], all different, in their order.
  static std::vector<std::int32_t> ranks(const auto& values) {
    std::vector<std::int32_t> order(values.size()), rank(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return values[at(a)] < values[at(b)]; });
    for (std::size_t i = 0; i < order.size(); ++i)
      rank[at(order[i])] = static_cast<std::int32_t>(i);
    return rank;
  }

  const Plan& plan_;
  const Cluster& cluster_;
  const Topology& topology_;
  std::vector<std::pair<PositionId, PositionId>> pairs_;
  int positions_;
  bool on_links_;
  std::optional<Loads> loads_;
  Fold fold_;
  std::map<Tokens, Kept> known_;
  std::vector<std::int32_t> local_;  // [link]: its number in the component at hand, -1: not passed yet
  std::vector<int> links_;           // of the component at hand, by number
  Route route_;                      // scratch
};

// Pairs of workers to be looked at: beyond it, plans with thousands of replicas, which have few copies.
constexpr double kMostPairs = 1 << 25;
double pairs_of_workers(const Plan& plan) {
  const Seating seating = plan.seating();
  const double workers = plan.positions();
  double neighbours = plan.facts.uses_partner ? workers : 0;
  for (int v = 0; v + 1 < plan.chunks(); ++v)
    neighbours += double(seating.holders(v)) * seating.holders(v + 1);
  return plan.copies() * (plan.skips == Skips::Direct ? workers * workers : 2 * neighbours);
}

// What no fold can be proven for, and what is not worth one.
bool stays_whole(const Plan& plan, const CostModel& cost, Alike alike) {
  if (plan.copies() < 3 || pairs_of_workers(plan) > kMostPairs) return true;
  if (alike == Alike::InTime) return false;
  const Scenario& scenario = cost.scenario();
  return scenario.cluster.sharing == Sharing::Fifo || scenario.plan.tensor_links.value == TensorLinks::Shared ||
         (scenario.cluster.classes() == 1 && !cost.source().loads().empty());
}

}  // namespace

std::vector<int> Fold::counts() const {
  std::vector<int> counts(copies.size());
  for (const std::int32_t copy : like)
    ++counts[at(copy)];
  return counts;
}

std::int32_t Fold::kept_link(int link) const {
  if (link_like.empty()) return -1;
  const std::int32_t kept = link_like[at(link)];
  return kept >= 0 && links[at(kept)] == link ? kept : -1;
}

std::shared_ptr<const Fold> fold_copies(const Plan& plan, const CostModel& cost, Alike alike) {
  return stays_whole(plan, cost, alike) ? nullptr : Folding(plan, cost, alike).run();
}

WorkerId simulated_worker(const Fold* fold, WorkerId worker, int positions) {
  return fold == nullptr ? int{worker} : fold->like[at(worker / positions)] * positions + worker % positions;
}

}  // namespace pipewright::core
