#include "cli/sweep_shard.hpp"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "core/check.hpp"

namespace pipewright {
namespace {

constexpr int kMostShards = 1'000'000;  // as many as a sweep may have points

std::optional<int> whole(std::string_view text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > 2 * kMostShards) return {};
  return value;
}

SweepShard of_option(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const auto number = whole(std::string_view(text).substr(0, slash), 1);
    const auto of = whole(std::string_view(text).substr(slash + 1), 1);
    if (number && of && *number <= *of && *of <= kMostShards) return {*number, *of};
  }
  throw InputError(fmt::format("--shard: \"{}\" is none of 1/N to N/N; write e.g. --shard 1/4", text));
}

}  // namespace

AskedShard asked_shard(const Arguments& arguments, const std::function<const char*(const char*)>& variables) {
  if (arguments.has("--shard")) return {of_option(arguments.last("--shard", "")), ""};
  const char* const id = variables("SLURM_ARRAY_TASK_ID");
  if (id == nullptr) return {};
  const auto number = [&](const char* name, int otherwise) {
    const char* const text = variables(name);
    const std::optional<int> value = text == nullptr ? otherwise : whole(text, 0);
    if (!value)
      throw InputError(
          fmt::format("{}=\"{}\" in the environment is no whole number; say which shard this is, e.g. "
                      "--shard 1/4",
                      name, text));
    return *value;
  };
  const int task = number("SLURM_ARRAY_TASK_ID", 0), least = number("SLURM_ARRAY_TASK_MIN", -1);
  const int count = number("SLURM_ARRAY_TASK_COUNT", 0), step = number("SLURM_ARRAY_TASK_STEP", 1);
  const int place = step > 0 ? (task - least) / step + 1 : 0;
  if (least < 0 || step < 1 || task < least || (task - least) % step != 0 || place > count)
    throw InputError(
        fmt::format("SLURM_ARRAY_TASK_ID={} is none of SLURM_ARRAY_TASK_COUNT={} tasks in steps of {} "
                    "from SLURM_ARRAY_TASK_MIN={}; say which shard this is, e.g. --shard 1/4, or --shard "
                    "1/1 for all points",
                    task, count, step, least));
  return {{place, count}, fmt::format("SLURM_ARRAY_TASK_ID={} of SLURM_ARRAY_TASK_COUNT={}", task, count)};
}

std::string text_of(const SweepShard& shard) {
  return fmt::format("{}/{}", shard.number, shard.of);
}

}  // namespace pipewright
