// Which layouts lie next to one, by their fields alone.
#include "planner/search/near_layouts.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include <doctest/doctest.h>

#include "tests/planner/small_spaces.hpp"

using namespace pipewright::tests;

namespace {

std::vector<std::int64_t> sizes(const Layout& layout) {
  return {layout.tensor_parallel, layout.context_parallel, layout.stages,
          layout.data_parallel,   layout.micro_batch_size, layout.expert_parallel};
}

// Twice here and half there, of devices; or half or twice the micro-batch.
bool one_step(const Layout& a, const Layout& b) {
  int more = 0, less = 0, others = 0, batch = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    const std::int64_t x = sizes(a)[i], y = sizes(b)[i];
    if (x == y) continue;
    if (i >= 4)
      (2 * x == y || x == 2 * y ? batch : others) += 1;
    else
      (2 * x == y ? more : x == 2 * y ? less : others) += 1;
  }
  return others == 0 && ((more == 1 && less == 1 && batch == 0) || (more == 0 && less == 0 && batch == 1));
}

bool near(const Layout& a, const Layout& b) {
  const int differs =
      (a.schedule != b.schedule) + (a.zero != b.zero) + (a.shard != b.shard) + (a.placement != b.placement);
  const int u = a.virtual_stages, v = b.virtual_stages;
  const bool like = u == v || 2 * u == v || u == 2 * v;
  if (a.global_batch() != b.global_batch()) return false;
  if (sizes(a) != sizes(b)) return one_step(a, b) && differs == 0 && like;
  if (a.schedule != b.schedule) return differs == 1 && like;
  return differs + (u != v ? 1 : 0) == 1;
}

}  // namespace

TEST_CASE("neighbours of a layout: one step away, in both directions, and all of them") {
  std::mt19937 random(3);
  Scenario scenario = random_scenario(random, 8, 16);
  open(scenario, {"stages", "data_parallel", "schedule", "virtual_stages", "placement"}, {"micro_batch_size", "zero"});
  const Space space = layouts_of(scenario);
  std::vector<Layout> all;
  for (const LayoutGroup& group : space.groups)
    for (Layout& layout : members(group))
      all.push_back(std::move(layout));
  REQUIRE(all.size() > 100);
  const NearLayouts layouts(space);
  std::size_t most = 0;
  for (std::size_t i = 0; i < all.size(); i += 7) {
    const std::vector<Layout> found = layouts.of(all[i]);
    const std::set<Layout> here(found.begin(), found.end());
    CHECK(here.size() == found.size());
    most = std::max(most, here.size());
    for (const Layout& other : all)
      CHECK(here.contains(other) == (other != all[i] && near(all[i], other)));
  }
  CHECK(most >= 10);
}
