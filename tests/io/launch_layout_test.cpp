// Megatron-LM's layout string: written, and read back as the same chunks.
#include <random>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "io/launch/layout.hpp"
#include "tests/support/input_error.hpp"

using namespace pipewright;

namespace {

std::vector<LayoutChunk> chunks(const std::vector<std::int64_t>& blocks) {
  std::vector<LayoutChunk> list;
  for (const std::int64_t count : blocks)
    list.push_back({.blocks = count});
  list.front().embedding = true, list.back().head = true;
  return list;
}

std::string wrong(const std::string& layout) {
  return error_of([&] { parse_megatron_layout(layout); });
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
  CHECK(parse_megatron_layout("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL") == chunks(blocks));
}

TEST_CASE("What is written reads back as the same chunks, empty middles included") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> blocks(1 + random() % 12);
    for (std::int64_t& count : blocks)
      count = static_cast<std::int64_t>(random() % 4);
    const std::string layout = megatron_layout(chunks(blocks));
    CAPTURE(layout);
    CHECK(parse_megatron_layout(layout) == chunks(blocks));
  }
}

TEST_CASE("Commas mean nothing and counts repeat a letter or what stands in parentheses") {
  CHECK(parse_megatron_layout("Ettt|(tt|)*2,L") == chunks({3, 2, 2, 0}));
  CHECK(parse_megatron_layout("E|t*0|,t,L") == chunks({0, 0, 1}));
}

TEST_CASE("A layout that is none says why") {
  CHECK(wrong("").find("needs E in front and L at the end") != std::string::npos);
  CHECK(wrong("tt|L").find("needs E in front") != std::string::npos);
  CHECK(wrong("EtL|t").find("loss elsewhere than at the end") != std::string::npos);
  CHECK(wrong("Et|EL").find("embedding elsewhere than in front") != std::string::npos);
  CHECK(wrong("Et|xL").find("has \"x\" where E, t, L, |, * or ( may stand") != std::string::npos);
  CHECK(wrong("Et*|L").find("a * without a number") != std::string::npos);
  CHECK(wrong("E(t|L").find("a ( without its )") != std::string::npos);
  CHECK(wrong("E((t|)*2)*2L").find("( within (") != std::string::npos);
  CHECK(wrong("Et)L").find("belongs to nothing") != std::string::npos);
  CHECK(wrong("Et*99999999999999999999L").find("more than a million layers") != std::string::npos);
}
