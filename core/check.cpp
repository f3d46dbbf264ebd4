#include "core/check.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "core/check_handler.hpp"
#include "core/folds.hpp"

namespace pipewright::core {

std::string head(const Place& place) {
  if (place.file.empty()) return {};
  if (place.line == 0) return place.file + ": ";
  return place.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": ";
}

std::string words(const Fault& fault) {
  return fault.key.empty() ? fault.text : fault.key + ": " + fault.text;
}

std::string line(const Fault& fault) {
  return head(fault.place) + words(fault);
}

namespace {
std::string lines(const std::vector<Fault>& faults) {
  return text_over(
      faults, [&](const Fault& fault) { return line(fault); }, "\n");
}

std::atomic<bool> checks_throw{false};

}  // namespace

InputError::InputError(Place place, std::string key, std::string text, ErrorCode code)
    : InputError(std::vector<Fault>{{std::move(place), std::move(key), std::move(text), code}}) {}

InputError::InputError(std::vector<Fault> faults)
    : std::runtime_error(lines(faults)), faults_(std::make_shared<const std::vector<Fault>>(std::move(faults))) {}

bool InputError::is(ErrorCode code) const {
  return std::all_of(faults_->begin(), faults_->end(), [&](const Fault& fault) { return fault.code == code; });
}

// Damerau-Levenshtein distance (insert, delete, replace, swap of neighbours), the last two rows kept.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    before.swap(previous);
    previous.swap(current);
  }
  return previous[b.size()];
}

void throw_where_checks_fail() noexcept {
  checks_throw = true;
}

void check_failed(const char* condition, const char* file, int line) {
  if (checks_throw) throw CheckFailed(std::string(condition) + " (" + file + ":" + std::to_string(line) + ")");
  std::fprintf(stderr, "pipewright: internal error: %s (%s:%d). This is a bug in pipewright; please report it.\n",
               condition, file, line);
  std::abort();
}

}  // namespace pipewright::core
