#include "sim/des/event_queue.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

// Everything that is left, in order of delivery: "5F1" is a Finish at 5 about 1.
std::string drained(EventQueue& queue) {
  std::string line;
  while (!queue.empty()) {
    const Event event = queue.pop();
    line += (line.empty() ? "" : " ") + std::to_string(event.time.value) + "FAS"[static_cast<int>(event.rank)] +
            std::to_string(event.what);
  }
  return line;
}

}  // namespace

TEST_CASE("at one instant things finish, then arrive, then start, whatever order they were announced in") {
  EventQueue queue;
  queue.push({5}, Rank::Start, 1);
  queue.push({5}, Rank::Arrive, 2);
  queue.push({4}, Rank::Start, 3);
  queue.push({5}, Rank::Finish, 4);
  queue.push({6}, Rank::Finish, 5);
  CHECK(drained(queue) == "4S3 5F4 5A2 5S1 6F5");
}

TEST_CASE("among equals the one announced first comes first") {
  EventQueue queue;
  for (const std::uint32_t what : {7, 3, 9, 1})
    queue.push({2}, Rank::Arrive, what);
  CHECK(drained(queue) == "2A7 2A3 2A9 2A1");
}

TEST_CASE("an op of zero length that starts at t finishes at t, before anything else arrives or starts") {
  // t = 5: a Start is delivered; the Finish that it causes has a smaller key than the Start, and comes next.
  EventQueue queue;
  queue.push({5}, Rank::Start, 1);
  queue.push({5}, Rank::Start, 2);
  CHECK(queue.pop() == Event{{5}, Rank::Start, 1});
  queue.push({5}, Rank::Finish, 1);
  queue.push({5}, Rank::Arrive, 8);
  CHECK(drained(queue) == "5F1 5A8 5S2");
}

TEST_CASE("events announced long ago for this instant come before those announced in it") {
  EventQueue queue;
  queue.push({5}, Rank::Arrive, 1);
  queue.push({3}, Rank::Start, 2);
  queue.push({5}, Rank::Arrive, 3);
  queue.push({5}, Rank::Finish, 4);
  CHECK(queue.pop() == Event{{3}, Rank::Start, 2});
  CHECK(queue.next_time() == Time{5});
  CHECK(queue.pop() == Event{{5}, Rank::Finish, 4});
  queue.push({5}, Rank::Arrive, 5);
  queue.push({5}, Rank::Finish, 6);
  CHECK(queue.next_time() == Time{5});
  CHECK(drained(queue) == "5F6 5A1 5A3 5A5");
  CHECK(queue.empty());
  CHECK(queue.next_time() == kNever);
}

TEST_CASE("any interleaving of pushes and pops delivers by time, rank and order of announcement") {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    EventQueue queue;
    using Key = std::tuple<std::int64_t, int, std::uint32_t>;  // `what` counts up: it is the sequence
    std::vector<Key> pending;
    std::uint32_t sequence = 0;
    for (int step = 0; step < 400; ++step) {
      if (random() % 5 < 3 && step < 300) {
        const auto time = queue.now().value + static_cast<std::int64_t>(random() % 4);
        const int rank = static_cast<int>(random() % 3);
        queue.push({time}, static_cast<Rank>(rank), sequence);
        pending.emplace_back(time, rank, sequence++);
      } else if (!pending.empty()) {
        const auto expected = std::min_element(pending.begin(), pending.end());
        CHECK(queue.next_time() == Time{std::get<0>(*expected)});
        const Event event = queue.pop();
        CHECK((Key{event.time.value, static_cast<int>(event.rank), event.what} == *expected));
        pending.erase(expected);
      }
    }
  }
}
