// How often a test draws a case of its own.
#pragma once

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

// `count`; under sanitizers, where each takes ten times as long, an eighth of them: builds without
// sanitizers meet the rare ones.
template <class Count>
constexpr Count rounds(Count count) {
  return kSanitized ? (count + 7) / 8 : count;
}

}  // namespace pipewright::tests
