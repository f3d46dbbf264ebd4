#include "core/divisors.hpp"

namespace pipewright::core {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d != number / d) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

std::string divisors_in_words(std::int64_t number, std::int64_t most) {
  std::vector<std::int64_t> all = divisors(number);
  while (all.size() > 1 && all.back() > most)
    all.pop_back();
  if (all.size() > 12) return "a divisor of " + std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + std::to_string(all[i]);
  return text;
}

}  // namespace pipewright::core
