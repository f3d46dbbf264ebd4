#include <algorithm>
#include <tuple>

#include "core/plan/plan.hpp"

namespace pipewright::core {
namespace {

using Count = std::optional<Placed<std::int64_t>>;

void require_positive(const Count& count, const std::string& key, std::int64_t most) {
  if (!count) return;
  if (count->value < 1) throw InputError(count->place, key, std::to_string(count->value) + "; must be at least 1");
  if (count->value > most)
    throw InputError(count->place, key,
                     std::to_string(count->value) + "; at most " + std::to_string(most) + " are supported");
}

// Divisors of n up to `kMostMicroBatches` (all of them for n <= 2^48, else those found below it), ascending.
std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t i = 1; i <= kMostMicroBatches && i <= n / i; ++i)
    if (n % i == 0) {
      small.push_back(i);
      if (i != n / i) large.push_back(n / i);
    }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// Valid values for the message: all of them, or the ones around the wrong one when there are many.
std::string listed(const std::vector<std::int64_t>& values, std::int64_t wrong) {
  constexpr std::ptrdiff_t most = 24;
  const auto above = std::ranges::upper_bound(values, wrong);
  auto begin = values.begin(), end = values.end();
  if (end - begin > most) {
    begin = std::max(begin, above - std::min(above - begin, most / 2));
    end = begin + std::min(end - begin, most);
  }
  std::string list;
  for (auto value = begin; value != end; ++value)
    list += (list.empty() ? "" : ", ") + std::to_string(*value);
  return (begin == values.begin() ? "" : "..., ") + list + (end == values.end() ? "" : ", ...");
}

std::string of_each_copy(std::int64_t samples, std::int64_t copies) {
  return copies == 1
             ? "the global batch of " + std::to_string(samples)
             : "the " + std::to_string(samples) + " samples of each of the " + std::to_string(copies) + " copies";
}

// Samples of one copy of the pipeline.
std::int64_t per_copy(const Placed<std::int64_t>& global, std::int64_t copies) {
  if (global.value % copies == 0) return global.value / copies;
  const std::int64_t below = global.value / copies * copies;
  throw InputError(global.place, "training.global_batch_size",
                   std::to_string(global.value) + " does not divide over " + std::to_string(copies) +
                       " copies (plan.data_parallel); use " + (below > 0 ? std::to_string(below) + " or " : "") +
                       std::to_string(below + copies));
}

// `count` micro-batches of ceil(samples / count), the last one smaller.
BatchSplit by_count(const Placed<std::int64_t>& global, const Placed<std::int64_t>& count, std::int64_t copies,
                    bool ragged) {
  const std::int64_t samples = per_copy(global, copies);
  if (samples % count.value != 0 && !ragged)
    throw InputError(count.place, "training.micro_batches",
                     std::to_string(count.value) + " does not divide " + of_each_copy(samples, copies) +
                         "; valid: " + listed(divisors(samples), count.value) +
                         "; or set `ragged: true` for a smaller last micro-batch");
  const std::int64_t size = (samples - 1) / count.value + 1;
  const std::int64_t needed = (samples - 1) / size + 1;
  if (needed != count.value)
    throw InputError(count.place, "training.micro_batches",
                     std::to_string(count.value) + " leave some empty: " + of_each_copy(samples, copies) + " fill " +
                         std::to_string(needed) + " of size " + std::to_string(size) + "; use " +
                         std::to_string(needed));
  return {global.value, size, count.value, samples - (count.value - 1) * size};
}

BatchSplit by_size(const Placed<std::int64_t>& global, const Placed<std::int64_t>& size, std::int64_t copies,
                   bool ragged) {
  const std::int64_t samples = per_copy(global, copies);
  if (samples % size.value != 0 && !ragged)
    throw InputError(size.place, "training.micro_batch_size",
                     std::to_string(size.value) + " does not divide " + of_each_copy(samples, copies) +
                         "; valid: " + listed(divisors(samples), size.value) +
                         "; or set `ragged: true` for a smaller last micro-batch");
  const std::int64_t full = std::min(size.value, samples), count = (samples - 1) / full + 1;
  if (count > kMostMicroBatches)
    throw InputError(size.place, "training.micro_batch_size",
                     std::to_string(size.value) + " makes " + std::to_string(count) + " micro-batches; at most " +
                         std::to_string(kMostMicroBatches) + " are supported, use larger ones",
                     ErrorCode::TooLarge);
  return {global.value, full, count, samples - (count - 1) * full};
}

// Of three figures too many, the one to leave out: what was set on the command line is what the user asks for.
std::string superfluous(const Training& training) {
  const auto asked_for = [](const auto& figure) { return figure->place.file.starts_with("--set "); };
  if (!asked_for(training.micro_batches)) return "micro_batches";
  return asked_for(training.global_batch_size) ? "micro_batch_size" : "global_batch_size";
}

// All three are given: they must agree.
void require_agreement(const BatchSplit& split, const Training& training, std::int64_t copies) {
  const auto& size = *training.micro_batch_size;
  const auto& count = *training.micro_batches;
  if (split.micro_batch_size == std::min(size.value, split.global_batch_size / copies) &&
      split.micro_batches == count.value)
    return;
  throw InputError(count.place, "training",
                   "global_batch_size " + std::to_string(split.global_batch_size) + " is not micro_batch_size " +
                       std::to_string(size.value) + " x micro_batches " + std::to_string(count.value) +
                       (copies > 1 ? " x data_parallel " + std::to_string(copies) : "") +
                       "; leave out one of the three, on the command line with --set training." +
                       superfluous(training) + "=null");
}

}  // namespace

BatchSplit batch_split(const Training& training, std::int64_t data_parallel) {
  const auto& [global, size, count] =
      std::tie(training.global_batch_size, training.micro_batch_size, training.micro_batches);
  require_positive(global, "training.global_batch_size", kLargest);
  require_positive(size, "training.micro_batch_size", kLargest);
  require_positive(count, "training.micro_batches", kMostMicroBatches);
  PP_CHECK(data_parallel >= 1);
  if (!global && size && count) {
    const std::int64_t samples = checked_product(size->value, count->value, "the batch of one copy");
    return {checked_product(samples, data_parallel, "the global batch"), size->value, count->value, size->value};
  }
  if (!global || (!size && !count))
    throw InputError(training.place, "training",
                     "give two of global_batch_size, micro_batch_size and micro_batches; the third follows");
  const BatchSplit split = size ? by_size(*global, *size, data_parallel, training.ragged)
                                : by_count(*global, *count, data_parallel, training.ragged);
  if (size && count) require_agreement(split, training, data_parallel);
  return split;
}

void open_micro_batches(Training& training, bool plan_open) {
  constexpr const char* kSize = "micro_batch_size";
  if (const auto size = training.open.find(kSize); size != training.open.end() && size->second.place == Place{})
    training.open.erase(size);
  const bool only_batch_given = training.global_batch_size && !training.micro_batch_size && !training.micro_batches &&
                                !training.open.contains(kSize) && !training.open.contains("micro_batches");
  if (plan_open && only_batch_given) training.open[kSize] = {};
}

}  // namespace pipewright::core
