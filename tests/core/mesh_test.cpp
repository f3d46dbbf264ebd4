// Which devices communicate: by hand, by the two formulas of Megatron-LM's ranks, and by torchtitan's meshes.
#include "core/plan/mesh.hpp"

#include <array>
#include <map>
#include <set>
#include <string>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

PlanRequest of_sizes(std::int64_t t, std::int64_t c, std::int64_t copies, std::int64_t stages) {
  PlanRequest plan;
  plan.tensor_parallel.value = t, plan.context_parallel.value = c, plan.data_parallel.value = copies;
  plan.stages.value = stages;
  plan.placement = PlacementOrder::Data;
  return plan;
}

Cluster of_devices(int devices) {
  Cluster cluster;
  cluster.devices_per_node = devices;
  return cluster;
}

// Ranks that differ in dimension `free` alone: rank = d_0 + n_0 (d_1 + n_1 (d_2 + ...)).          [Megatron26] RankGenerator
std::set<std::vector<DeviceId>> by_ranks(const std::vector<int>& sizes, const std::set<std::size_t>& free) {
  std::map<std::vector<int>, std::vector<DeviceId>> groups;
  int all = 1;
  for (const int size : sizes)
    all *= size;
  for (int rank = 0; rank < all; ++rank) {
    std::vector<int> fixed;
    int left = rank;
    for (std::size_t d = 0; d < sizes.size(); left /= sizes[d], ++d)
      if (!free.contains(d)) fixed.push_back(left % sizes[d]);
    groups[fixed].push_back(rank);
  }
  std::set<std::vector<DeviceId>> found;
  for (auto& [fixed, members] : groups)
    found.insert(std::move(members));
  return found;
}

// Ranks of a mesh of PyTorch's, named from the slowest dimension to the fastest: those that differ in the `free` ones alone.
// rank = (... (d_0 n_1 + d_1) n_2 + ...) n_last + d_last                                            [torchtitan26]
struct NamedSize {
  std::string name;
  int size = 1;
};
std::set<std::vector<DeviceId>> of_mesh(const std::vector<NamedSize>& mesh, const std::set<std::string>& free) {
  std::map<std::string, std::vector<DeviceId>> groups;
  const auto visit = [&](const auto& self, std::size_t d, int rank, const std::string& fixed) -> void {
    if (d == mesh.size()) return groups[fixed].push_back(rank);
    const auto& [name, size] = mesh[d];
    for (int i = 0; i < size; ++i)
      self(self, d + 1, rank * size + i, free.contains(name) ? fixed : fixed + name + std::to_string(i) + " ");
  };
  visit(visit, 0, 0, "");
  std::set<std::vector<DeviceId>> found;
  for (auto& [fixed, members] : groups)
    found.insert(std::move(members));
  return found;
}

std::set<std::vector<DeviceId>> as_set(const DeviceGroups& groups) {
  return {groups.begin(), groups.end()};
}

}  // namespace

// 16 ranks, t = c = D = K = 2. The second stage lies 8 devices behind the first.
TEST_CASE("Groups of two stages of eight devices") {
  const PlanRequest plan = of_sizes(2, 2, 2, 2);
  const std::vector<DeviceId> all = with_members(leads_of_first_stage(plan, of_devices(16)), 2);
  CHECK(all == std::vector<DeviceId>{0, 1, 2, 3, 4, 5, 6, 7});
  const Mesh dense(all, {{Axis::Tensor, 2}, {Axis::Ring, 2}, {Axis::Replica, 2}});
  CHECK(dense.along({Axis::Tensor}) == DeviceGroups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(dense.along({Axis::Ring}) == DeviceGroups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(dense.along({Axis::Replica}) == DeviceGroups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(dense.along({Axis::Ring, Axis::Replica}) == DeviceGroups{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(dense.along({Axis::Tensor, Axis::Ring, Axis::Replica}) == DeviceGroups{all});
  CHECK(dense.along({}).size() == 8);
  const Mesh whole_experts(all, {{Axis::Part, 1}, {Axis::Expert, 4}, {Axis::Copy, 2}});
  CHECK(whole_experts.along({Axis::Expert}) == DeviceGroups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(whole_experts.along({Axis::Copy}).front() == std::vector<DeviceId>{0, 4});
  const Mesh divided(all, {{Axis::Part, 2}, {Axis::Expert, 2}, {Axis::Copy, 2}});
  CHECK(divided.along({Axis::Part}).front() == std::vector<DeviceId>{0, 1});
  CHECK(divided.along({Axis::Expert}).front() == std::vector<DeviceId>{0, 2});
  CHECK(divided.along({Axis::Copy}).front() == std::vector<DeviceId>{0, 4});
  CHECK(seat_of(PlacementOrder::Data, 0, 1, 4, 2, 2) * 2 == 8);
}

TEST_CASE("Groups are those of Megatron-LM's formulas of ranks") {
  for (const auto& [t, c, d, x, e] :
       std::vector<std::array<int, 5>>{{2, 3, 4, 1, 6}, {1, 2, 6, 1, 4}, {4, 1, 3, 2, 3}, {2, 2, 2, 4, 2}}) {
    CAPTURE(t);
    CAPTURE(c);
    CAPTURE(d);
    const int all = t * c * d;
    const std::vector<DeviceId> devices =
        with_members(leads_of_first_stage(of_sizes(t, c, d, 3), of_devices(3 * all)), t);
    const Mesh dense(devices, {{Axis::Tensor, t}, {Axis::Ring, c}, {Axis::Replica, d}});
    CHECK(as_set(dense.along({Axis::Ring})) == by_ranks({t, c, d}, {1}));
    CHECK(as_set(dense.along({Axis::Ring, Axis::Replica})) == by_ranks({t, c, d}, {1, 2}));
    const Mesh experts(devices, {{Axis::Part, x}, {Axis::Expert, e}, {Axis::Copy, all / e / x}});
    CHECK(as_set(experts.along({Axis::Expert})) == by_ranks({x, e, all / e / x}, {1}));
    CHECK(as_set(experts.along({Axis::Copy})) == by_ranks({x, e, all / e / x}, {2}));
    // tp-cp-dp-pp, and tp-cp-pp-dp where each copy lies on consecutive devices.
    for (int copy = 0; copy < c * d; ++copy)
      for (int stage = 0; stage < 3; ++stage) {
        CHECK(seat_of(PlacementOrder::Data, copy, stage, c * d, 3, c) == copy % c + c * (copy / c + d * stage));
        CHECK(seat_of(PlacementOrder::Pipeline, copy, stage, c * d, 3, c) == copy % c + c * (stage + 3 * (copy / c)));
      }
  }
}

// dp_replicate R, dp_shard S, cp c, tp t: "fsdp" is dp_shard and cp in one, and experts' ranks are the same ones once more,
// dp_replicate, efsdp, ep and etp, with efsdp = S c t / (ep etp).                  [torchtitan26] ParallelDims.build_mesh
TEST_CASE("Groups are those of torchtitan's meshes") {
  for (const auto& [R, S, c, t, ep, etp] : std::vector<std::array<int, 6>>{
           {2, 3, 2, 2, 4, 1}, {2, 4, 1, 2, 2, 2}, {1, 6, 2, 4, 3, 4}, {3, 2, 2, 1, 4, 1}, {2, 2, 4, 2, 16, 1}}) {
    CAPTURE(R);
    CAPTURE(S);
    CAPTURE(c);
    CAPTURE(t);
    const int all = R * S * c * t, efsdp = S * c * t / (ep * etp), stages = 3;
    const std::vector<DeviceId> leads = leads_of_first_stage(of_sizes(t, c, R * S, stages), of_devices(stages * all));
    const std::vector<DeviceId> devices = with_members(leads, t);
    const std::vector<NamedSize> data = {{"dp_replicate", R}, {"dp_shard", S}, {"cp", c}, {"tp", t}};
    const Mesh dense(devices, {{Axis::Tensor, t}, {Axis::Ring, c}, {Axis::Shard, S}, {Axis::Replica, R}});
    CHECK(as_set(dense.along({Axis::Tensor})) == of_mesh(data, {"tp"}));
    CHECK(as_set(dense.along({Axis::Ring})) == of_mesh(data, {"cp"}));
    CHECK(as_set(dense.along({Axis::Ring, Axis::Shard})) ==
          of_mesh({{"dp_replicate", R}, {"fsdp", S * c}, {"tp", t}}, {"fsdp"}));
    CHECK(as_set(dense.along({Axis::Replica})) == of_mesh(data, {"dp_replicate"}));
    CHECK(as_set(dense.along({Axis::Ring, Axis::Shard, Axis::Replica})) ==
          of_mesh(data, {"dp_replicate", "dp_shard", "cp"}));
    const std::vector<NamedSize> sparse = {{"dp_replicate", R}, {"efsdp", efsdp}, {"ep", ep}, {"etp", etp}};
    const Mesh experts(devices, {{Axis::Part, etp}, {Axis::Expert, ep}, {Axis::Copy, R * efsdp}});
    CHECK(as_set(experts.along({Axis::Part})) == of_mesh(sparse, {"etp"}));
    CHECK(as_set(experts.along({Axis::Expert})) == of_mesh(sparse, {"ep"}));
    CHECK(as_set(experts.along({Axis::Copy})) == of_mesh(sparse, {"dp_replicate", "efsdp"}));
    // Pipelines come before all of them: a stage's ranks follow one another.
    for (int copy = 0; copy < R * S * c; ++copy)
      CHECK(seat_of(PlacementOrder::Data, copy, 2, R * S * c, stages, c) * t == 2 * all + leads[at(copy)]);
  }
}

TEST_CASE("Leads of the first stage are those of a list, or none where they can't be placed") {
  PlanRequest plan = of_sizes(2, 1, 2, 2);
  plan.placement = PlacementOrder::Pipeline;
  CHECK(leads_of_first_stage(plan, of_devices(8)) == std::vector<DeviceId>{0, 4});
  CHECK(leads_of_first_stage(plan, of_devices(3)).empty());
  plan.placement = std::vector<std::int64_t>{6, 0, 2, 4};  // worker by worker: copy 0 on 6 and 0
  CHECK(leads_of_first_stage(plan, of_devices(8)) == std::vector<DeviceId>{6, 2});
  plan.placement = std::vector<std::int64_t>{3, 0, 2, 4};  // 3 is a member of 2's worker
  CHECK(leads_of_first_stage(plan, of_devices(8)).empty());
  plan.placement = std::vector<std::int64_t>{7, 0, 2, 4};  // and 8 is none
  CHECK(leads_of_first_stage(plan, of_devices(8)).empty());
  plan.placement = std::vector<std::int64_t>{0, 2};
  CHECK(leads_of_first_stage(plan, of_devices(8)).empty());
}
