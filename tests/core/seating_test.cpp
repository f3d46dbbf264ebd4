// Who runs and holds what, against the second writing of tests/support/places.hpp.
#include "core/plan/seating.hpp"

#include <memory>
#include <random>
#include <set>
#include <tuple>

#include <doctest/doctest.h>

#include "tests/support/places.hpp"

using namespace pipewright::tests;

namespace {

// Micro-batches dealt to the pipelines as no rule says it; each gets one at least.
ScheduleShape listed(int stages, int micro_batches, int copies, int pipelines) {
  std::mt19937 random(static_cast<unsigned>(stages + micro_batches * 100));
  std::vector<int> dealt;
  for (int m = 0; m < micro_batches; ++m)
    dealt.push_back(m < pipelines ? pipelines - 1 - m : static_cast<int>(random() % static_cast<unsigned>(pipelines)));
  GivenSchedule given;
  given.dealing.emplace(std::move(dealt), pipelines);
  return {.stages = stages,
          .micro_batches = micro_batches,
          .pipelines = pipelines,
          .data_parallel = copies,
          .chunk_order = ChunkOrder::Listed,
          .given = std::make_shared<const GivenSchedule>(std::move(given))};
}

}  // namespace

TEST_CASE("seating: every look-up agrees with the list of who holds what") {
  int shapes = 0;
  const auto check = [&](const ScheduleShape& shape) {
    const Seating seating = shape.seating();
    CAPTURE(static_cast<int>(shape.chunk_order));
    CAPTURE(shape.stages);
    CAPTURE(shape.virtual_stages);
    CAPTURE(shape.micro_batches);
    std::vector<std::set<int>> held(static_cast<std::size_t>(seating.positions()));
    for (int v = 0; v < shape.chunks(); ++v) {
      const std::vector<int> places = oracle::places(shape, v);
      REQUIRE(seating.holders(v) == std::ssize(places));
      CHECK(seating.reduced(v) == (shape.data_parallel * std::ssize(places) > 1));
      CHECK(seating.members(v) == shape.data_parallel * std::ssize(places));
      std::vector<int> turns(places.size());
      const std::vector<PositionId> holders = pipewright::core::places(seating, v);
      CHECK(std::vector<int>(holders.begin(), holders.end()) == places);
      for (int holder = 0; holder < seating.holders(v); ++holder) {
        const int position = places[static_cast<std::size_t>(holder)];
        CHECK(seating.position(v, holder) == position);
        CHECK(seating.stage_at(position) == seating.stage_of(v, holder));
        CHECK(seating.holds(seating.stage_at(position), v));
        held[static_cast<std::size_t>(position)].insert(v);
      }
      for (int m = 0; m < shape.micro_batches; ++m) {
        const int holder = oracle::holder_of(shape, v, m);
        int& turn = turns[static_cast<std::size_t>(holder)];
        const int other = (holder + 1) % seating.holders(v);
        CHECK(seating.turns(v, holder, m) == turn);
        CHECK(seating.turns(v, other, m) == turns[static_cast<std::size_t>(other)]);
        CHECK(seating.holder_of(v, m) == holder);
        CHECK(seating.position_of(v, m) == oracle::position_of(shape, v, m));
        CHECK(seating.turn_of(v, m) == turn);
        CHECK(seating.micro_batch(v, holder, turn) == m);
        CHECK(Rounds{seating, true}.of(v, m) == 0);
        CHECK(Rounds{seating, false}.of(v, m) == turn);
        ++turn;
      }
      for (std::size_t holder = 0; holder < turns.size(); ++holder)
        CHECK(seating.turns(v, static_cast<int>(holder)) == turns[holder]);
      std::int64_t all = 0;
      const Rounds rounds{seating, false};
      for (int round = 0; round < rounds.count(v); ++round)
        all += rounds.micro_batches(v, round);
      CHECK(all == shape.micro_batches);
      const VirtualStageId whole = seating.whole_of(v);
      CHECK(seating.unit(whole, seating.unit_of(v)) == v);
      CHECK(seating.whole_of(seating.first_unit(v)) == whole);
      CHECK(seating.last_unit(v) - seating.first_unit(v) == shape.units - 1);
      CHECK(seating.stage_of(seating.last_unit(v)) == seating.stage_of(v));
    }
    CHECK(seating.whole_of(shape.chunks() - 1) == seating.wholes() - 1);
    CHECK(seating.lying() * shape.stages == shape.chunks());
    // Each worker holds as many chunks, and knows which is which.
    for (int position = 0; position < seating.positions(); ++position) {
      const StageId stage = seating.stage_at(position);
      std::set<int> chunks;
      for (int i = 0; i < seating.held(); ++i) {
        chunks.insert(seating.chunk_of(stage, i));
        CHECK(seating.local(seating.chunk_of(stage, i), stage) == i);
      }
      CHECK(chunks == held[static_cast<std::size_t>(position)]);
    }
    // Which holders exchange messages: those that some micro-batch joins, as far as there are enough of them.
    for (int v = 0; v + 1 < shape.chunks() && shape.micro_batches >= 12; ++v) {
      std::set<std::pair<int, int>> met;
      for (int m = 0; m < shape.micro_batches; ++m)
        met.emplace(oracle::holder_of(shape, v, m), oracle::holder_of(shape, v + 1, m));
      for (int a = 0; a < seating.holders(v); ++a)
        for (int b = 0; b < seating.holders(v + 1); ++b)
          CHECK((a % seating.joined(v, v + 1) == b % seating.joined(v, v + 1)) == met.contains({a, b}));
    }
    ++shapes;
  };
  for (int K = 1; K <= 12; K += K < 6 ? 1 : 2)
    for (const int M : {1, 2, 5, 12, 13})
      for (const int D : {1, 3}) {
        for (int v = 1; v <= 4; ++v)
          for (const ChunkOrder order : {ChunkOrder::Loop, ChunkOrder::V})
            for (const int units : {1, 3})
              check({.stages = K,
                     .virtual_stages = v,
                     .micro_batches = M,
                     .data_parallel = D,
                     .chunk_order = order,
                     .units = units});
        if (K % 2 == 0)
          for (const ChunkOrder order : {ChunkOrder::BothWays, ChunkOrder::InTurns, ChunkOrder::Alternate})
            check({.stages = K, .micro_batches = M, .data_parallel = D, .chunk_order = order});
        for (const int pipelines : {4, 6, 8})
          if (K % pipelines == 0)
            check({.stages = K,
                   .micro_batches = M,
                   .pipelines = pipelines,
                   .data_parallel = D,
                   .chunk_order = ChunkOrder::InTurns});
        for (const int pipelines : {2, 4, 6})
          if (K % pipelines == 0 && M >= pipelines) check(listed(K, M, D, pipelines));
        for (int r = 1; r <= 3; ++r) {
          ScheduleShape shape{.stages = K, .micro_batches = M, .data_parallel = D};
          for (int k = 0; k < K; ++k)
            shape.replicas.push_back(1 + (k + r) % 4);
          check(shape);
        }
      }
  CHECK(shapes > 600);
}

TEST_CASE("seating: an odd micro-batch goes down") {
  const ScheduleShape shape{.stages = 4, .micro_batches = 5, .chunk_order = ChunkOrder::BothWays};
  const Seating seating = shape.seating();
  CHECK(seating.position_of(0, 2) == 0);
  CHECK(seating.position_of(0, 3) == 3);
  CHECK(seating.number_in_file(0, 2) == 0);
  CHECK(seating.number_in_file(0, 3) == 4);  // the first stage of the way up
  CHECK(seating.of_number_in_file(7).chunk == 3);
  CHECK(seating.of_number_in_file(7).way == 1);
  CHECK(seating.number_in_file({3, 1}) == 7);
  const Seating loop{.stages = 2, .virtual_stages = 4};
  CHECK(loop.of_number_in_file(7).chunk == 7);
  CHECK(loop.number_in_file(loop.of_number_in_file(7)) == 7);
}

TEST_CASE("versions asked for: three updates of two holders have seen six micro-batches, as two of three holders") {
  const std::vector<int> replicas = {2, 3};
  const Seating seating{.stages = 2, .micro_batches = 12, .replicas = replicas};
  CHECK(version_asked(seating, 0, 3, 9) == 3);
  CHECK(version_asked(seating, 1, 3, 9) == 2);
  CHECK(version_asked(seating, 1, 4, 9) == 2);  // eight, and the third waits for the ninth
  CHECK(version_asked(seating, 1, 3, 1) == 1);  // of those that there are
}

TEST_CASE("seating in turns: two micro-batches of four stages go down, two up, and one down again") {
  const ScheduleShape shape{.stages = 4, .micro_batches = 5, .chunk_order = ChunkOrder::InTurns};
  const Seating seating = shape.seating();
  for (const auto& [m, position] :
       {std::pair{0, 1}, std::pair{1, 1}, std::pair{2, 2}, std::pair{3, 2}, std::pair{4, 1}})
    CHECK(seating.position_of(1, m) == position);
  CHECK(seating.turn_of(1, 4) == 2);
  CHECK(seating.micro_batch(1, 0, 2) == 4);
  CHECK(seating.turns(1, 0) == 3);
  CHECK(seating.turns(1, 1) == 2);
}

TEST_CASE("seating of four pipelines: two go down, from stages 0 and 4 of eight, two up, from stages 7 and 3") {
  const ScheduleShape shape{.stages = 8, .micro_batches = 8, .pipelines = 4, .chunk_order = ChunkOrder::InTurns};
  const Seating seating = shape.seating();
  for (const auto& [holder, first, up] :
       {std::tuple{0, 0, false}, std::tuple{1, 4, false}, std::tuple{2, 7, true}, std::tuple{3, 3, true}}) {
    CHECK(seating.position(0, holder) == first);
    CHECK(seating.goes_up(holder) == up);
    CHECK(seating.micro_batch(0, holder, 1) == 2 * holder + 1);
  }
  CHECK(seating.chunk_of(5, 1) == 1);
  CHECK(seating.group_of(0) == seating.group_of(7));
  CHECK(seating.group_of(0) != seating.group_of(1));
  CHECK_FALSE(Seating{.stages = 8}.goes_up(1));
}

TEST_CASE("seating by a list: micro-batches 0 and 3 of four go up") {
  const Dealing dealing({1, 0, 0, 1}, 2);
  const Seating seating{.stages = 2, .chunk_order = ChunkOrder::Listed, .micro_batches = 4, .dealing = &dealing};
  CHECK(seating.position_of(0, 0) == 1);
  CHECK(seating.position_of(0, 1) == 0);
  CHECK(seating.turn_of(0, 3) == 1);
  CHECK(seating.micro_batch(0, 1, 1) == 3);
  CHECK(seating.number_in_file(1, 3) == 3);
  // Without a flush two rounds of one micro-batch of each; with three in one pipeline, three.
  CHECK(Rounds{seating, false}.count(0) == 2);
  const Dealing uneven({1, 1, 0, 1}, 2);
  CHECK(Rounds{{.stages = 2, .chunk_order = ChunkOrder::Listed, .micro_batches = 4, .dealing = &uneven}, false}.count(
            0) == 3);
}
