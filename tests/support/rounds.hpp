// How often a test draws a case of its own.
#pragma once

#include <cstdlib>

namespace pipewright::tests {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// How many times as often as usual: PIPEWRIGHT_MORE_ROUNDS, which `.ci/run --seldom programs` sets.
inline int more_rounds() {
  static const char* const asked = std::getenv("PIPEWRIGHT_MORE_ROUNDS");
  static const int times = asked == nullptr ? 1 : std::atoi(asked);
  return times > 1 ? times : 1;
}

// `count`; under sanitizers, where each takes ten times as long, an eighth of them: builds without
// sanitizers meet the rare ones.
template <class Count>
Count rounds(Count count) {
  return (kSanitized ? (count + 7) / 8 : count) * static_cast<Count>(more_rounds());
}

// The same, but never fewer than `count`, all of which the test needs.
template <class Count>
Count full_rounds(Count count) {
  return rounds(count) > count ? rounds(count) : count;
}

}  // namespace pipewright::tests
