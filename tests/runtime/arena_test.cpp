#include "runtime/arena.hpp"

#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("Arena, best fit: the smallest gap that holds a block, of several the lowest, else the end") {
  Arena arena({64});
  const auto a = arena.allocate({100}, Tag::Weights);
  const auto b = arena.allocate({200}, Tag::Stash);
  const auto c = arena.allocate({100}, Tag::Workspace);
  CHECK(a == 0);
  CHECK(b == 128);
  CHECK(c == 384);
  CHECK(arena.live() == Bytes{512});
  arena.free(b);
  CHECK(arena.allocate({60}, Tag::Stash) == 128);
  CHECK(arena.allocate({180}, Tag::Stash) == 192);
  CHECK(arena.peak().extent == Bytes{512});
  CHECK(arena.peak().live == Bytes{512});
}

TEST_CASE("Arena: freed neighbours join, and the end moves back") {
  Arena arena({64});
  const auto a = arena.allocate({64}, Tag::Stash);
  const auto b = arena.allocate({64}, Tag::Stash);
  const auto c = arena.allocate({64}, Tag::Stash);
  arena.allocate({64}, Tag::Weights);
  arena.free(a), arena.free(c), arena.free(b);  // 0 ... 192 is one gap now
  CHECK(arena.allocate({192}, Tag::Stash) == 0);
  CHECK(arena.peak().extent == Bytes{256});
}

TEST_CASE("Arena: the peak tells what was held at its moment, by tag") {
  Arena arena({64});
  arena.allocate({64}, Tag::Weights);
  const auto stash = arena.allocate({640}, Tag::Stash);
  arena.free(stash);
  arena.allocate({128}, Tag::Workspace);
  CHECK(arena.peak().live == Bytes{704});
  CHECK(arena.peak().by_tag[static_cast<int>(Tag::Stash)] == Bytes{640});
  CHECK(arena.peak().by_tag[static_cast<int>(Tag::Workspace)] == Bytes{0});
  CHECK(text(arena.peak()) == "weights 64 B, stash 640 B");
}

TEST_CASE("Arena: a cap holds the extent, and one byte less does not") {
  Arena fits({64}, {256}), tight({64}, {255});
  for (Arena* arena : {&fits, &tight})
    arena->allocate({192}, Tag::Weights);
  CHECK(fits.allocate({1}, Tag::Stash) == 192);
  CHECK_THROWS_WITH_AS(tight.allocate({1}, Tag::Stash), doctest::Contains("would end at 256 B of 255 B"), OutOfArena);
}

TEST_CASE("Arena: blocks never overlap, on random sequences") {
  std::mt19937 random(7);
  Arena arena({64});
  std::vector<std::pair<std::int64_t, std::int64_t>> held;
  for (int i = 0; i < 4000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      const std::size_t which = random() % held.size();
      arena.free(held[which].first);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    const std::int64_t bytes = 1 + static_cast<std::int64_t>(random() % 1000);
    const std::int64_t address = arena.allocate({bytes}, Tag::Stash);
    CHECK(address % 64 == 0);
    for (const auto& [other, size] : held)
      CHECK((address + bytes <= other || other + size <= address));
    held.emplace_back(address, bytes);
  }
}
