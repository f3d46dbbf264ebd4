#include "core/answers/ranking.hpp"

#include <algorithm>
#include <functional>

namespace pipewright::core {

std::string in_words(const Layout& layout) {
  std::string text;
  if (layout.tensor_parallel > 1) text += "TP" + std::to_string(layout.tensor_parallel) + " ";
  if (layout.context_parallel > 1) text += "CP" + std::to_string(layout.context_parallel) + " ";
  if (layout.expert_parallel > 1) text += "EP" + std::to_string(layout.expert_parallel) + " ";
  text += "PP" + std::to_string(layout.stages) + " ";
  if (layout.virtual_stages > 1) text += "VP" + std::to_string(layout.virtual_stages) + " ";
  text += "DP" + std::to_string(layout.data_parallel) + ", " + std::to_string(layout.micro_batches) +
          (layout.micro_batches == 1 ? " micro-batch of " : " micro-batches of ") +
          std::to_string(layout.micro_batch_size) + ", " + layout.schedule;
  if (layout.zero > 0) text += ", ZeRO-" + std::to_string(layout.zero);
  if (layout.shard > 0) text += " over groups of " + std::to_string(layout.shard);
  return text;
}

std::string_view name(Ended ended) {
  switch (ended) {
    case Ended::No: return "";
    case Ended::TimeLimit: return "the time limit";
    case Ended::Interrupted: return "interrupted";
  }
  return "";
}

std::string in_words(const NoPlanYet& none) {
  const std::string who(none.ended == Ended::Interrupted ? "an interrupt (Ctrl-C or SIGTERM)" : name(none.ended));
  return "no plan found yet: " + who + " ended the search after " + std::to_string(none.layouts - none.not_reached) +
         " of " + std::to_string(none.layouts) + (none.layouts == 1 ? " layout" : " layouts");
}

namespace {

// "0-2, 5"; beyond a few ranges only how many.
std::string layers_in_words(const std::vector<LayerId>& layers) {
  constexpr int kMostRanges = 4;
  std::string text;
  int ranges = 0;
  for (std::size_t begin = 0; begin < layers.size(); ++ranges) {
    std::size_t end = begin + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1)
      ++end;
    text += (text.empty() ? "" : ", ") + std::to_string(layers[begin]);
    if (end - begin > 1) text += "-" + std::to_string(layers[end - 1]);
    begin = end;
  }
  if (ranges > kMostRanges) return std::to_string(layers.size()) + " layers";
  return (layers.size() == 1 ? "layer " : "layers ") + text;
}

// " on stages 4-6"; `end`: the one behind the last.
std::string on_stages(std::size_t begin, std::size_t end) {
  if (end - begin == 1) return " on stage " + std::to_string(begin);
  return " on stages " + std::to_string(begin) + "-" + std::to_string(end - 1);
}

}  // namespace

std::string_view word(Recompute mode) {
  switch (mode) {
    case Recompute::None: return "none";
    case Recompute::Selective: return "selective";
    case Recompute::Full: return "full";
    case Recompute::Blocks: return "blocks";
    case Recompute::Layers: return "layers";
    case Recompute::Knapsack: return "knapsack";
  }
  return "";
}

std::string recompute_in_words(const Plan& plan) {
  if (plan.rebuilt.empty()) return in_words(plan.recompute);
  std::string text = "recompute " + layers_in_words(plan.rebuilt);
  for (StageId k = 0, end = 0; k < std::ssize(plan.recompute); k = end) {
    const Recompute mode = plan.recompute[k];
    while (end < std::ssize(plan.recompute) && plan.recompute[end] == mode)
      ++end;
    if (mode == Recompute::Layers || mode == Recompute::None) continue;
    text += ", " + std::string(word(mode)) + on_stages(k, end);
  }
  return text;
}

std::string in_words(const std::vector<Recompute>& recompute) {
  if (std::ranges::adjacent_find(recompute, std::not_equal_to<>()) == recompute.end())
    return "recompute " + std::string(word(recompute.empty() ? Recompute::None : recompute.front()));
  std::string text = "recompute";
  for (std::size_t begin = 0; begin < recompute.size();) {
    std::size_t end = begin;
    while (end < recompute.size() && recompute[end] == recompute[begin])
      ++end;
    text += std::string(begin == 0 ? " " : ", ") + std::string(word(recompute[begin])) + on_stages(begin, end);
    begin = end;
  }
  return text;
}

}  // namespace pipewright::core
