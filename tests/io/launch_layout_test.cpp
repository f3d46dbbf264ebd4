// Megatron-LM's layout string: written, and read back as the same chunks.
#include <random>

#include <doctest/doctest.h>

#include "tests/support/megatron_layout.hpp"

using namespace pipewright::tests;

namespace {

std::vector<LayoutChunk> chunks(const std::vector<std::int64_t>& blocks) {
  std::vector<LayoutChunk> list;
  for (const std::int64_t count : blocks)
    list.push_back({.blocks = count});
  list.front().embedding = true, list.back().head = true;
  return list;
}

}  // namespace

// The layout that NVIDIA publishes for Llama-3 70B on 64 H100: 40 chunks, 80 blocks.
TEST_CASE("A hand-tuned layout is written letter by letter as its authors wrote it") {
  std::vector<std::int64_t> blocks = {2};
  blocks.insert(blocks.end(), 34, 2);
  blocks.push_back(3);
  blocks.insert(blocks.end(), 3, 2);
  blocks.push_back(1);
  CHECK(megatron_layout(chunks(blocks)) == "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL");
  CHECK(chunks_of_layout("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL") == chunks(blocks));
}

TEST_CASE("What is written reads back as the same chunks, empty middles included") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> blocks(1 + random() % 12);
    for (std::int64_t& count : blocks)
      count = static_cast<std::int64_t>(random() % 4);
    const std::string layout = megatron_layout(chunks(blocks));
    CAPTURE(layout);
    CHECK(chunks_of_layout(layout) == chunks(blocks));
  }
}
