#include "planner/search/near_layouts.hpp"

#include <algorithm>

namespace pipewright::planner {

NearLayouts::Sizes NearLayouts::sizes_of(const Layout& layout) {
  return {layout.tensor_parallel, layout.context_parallel, layout.stages,
          layout.data_parallel,   layout.micro_batch_size, layout.expert_parallel};
}

NearLayouts::NearLayouts(const Space& space) {
  for (const LayoutGroup& group : space.groups)
    groups_.emplace(sizes_of(group.first), &group);
}

std::vector<Layout> NearLayouts::of(const Layout& layout) const {
  constexpr std::size_t kAxes = 4;  // whose product is the number of devices
  std::vector<Layout> all;
  const Sizes here = sizes_of(layout);
  add_group(here, layout, all);
  for (std::size_t i = 0; i < here.size(); ++i) {
    Sizes less = here;
    if (less[i] % 2 != 0) continue;
    less[i] /= 2;
    for (std::size_t j = 0; i < kAxes && j < kAxes; ++j) {
      if (j == i) continue;
      Sizes moved = less;
      moved[j] *= 2;
      add_group(moved, layout, all);
    }
    if (i >= kAxes) add_group(less, layout, all);
  }
  for (std::size_t i = kAxes; i < here.size(); ++i) {
    Sizes more = here;
    more[i] *= 2;
    add_group(more, layout, all);
  }
  return all;
}

void NearLayouts::add_group(const Sizes& sizes, const Layout& like, std::vector<Layout>& all) const {
  const auto [first, last] = groups_.equal_range(sizes);
  for (auto group = first; group != last; ++group)
    for (Layout& layout : members(*group->second)) {
      if (layout.global_batch() != like.global_batch() || layout == like) continue;
      const int differs = (layout.schedule != like.schedule) + (layout.zero != like.zero) +
                          (layout.shard != like.shard) + (layout.placement != like.placement);
      const int chunks = layout.virtual_stages, before = like.virtual_stages;
      const bool same_group = sizes == sizes_of(like);
      const bool near = chunks == before || chunks == 2 * before || 2 * chunks == before;
      // Another schedule may take another number of chunks.
      if (same_group ? differs + (chunks != before) == 1 || (differs == 1 && layout.schedule != like.schedule && near)
                     : differs == 0 && near)
        all.push_back(std::move(layout));
    }
}

}  // namespace pipewright::planner
