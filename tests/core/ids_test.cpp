// Ids of different kinds do not stand for one another: most of it is that this compiles.
#include "core/ids.hpp"

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/plan/plan.hpp"

namespace pipewright::tests {
namespace {

template <class A, class B>
concept ComparableIds = requires(A a, B b) {
  a == b;
}
|| requires(A a, B b) {
  a < b;
};
template <class Table, class Key>
concept IndexedBy = requires(Table& table, Key key) {
  table[key];
};

static_assert(!std::is_convertible_v<StageId, VirtualStageId> && !std::is_constructible_v<StageId, VirtualStageId>);
static_assert(!std::is_assignable_v<WorkerId&, PositionId>);
static_assert(!ComparableIds<PositionId, StageId> && ComparableIds<StageId, StageId> && ComparableIds<StageId, int>);

// Arguments of look-ups cannot be swapped.
static_assert(std::is_invocable_v<decltype(&Plan::rebuilds), Plan, StageId, LayerId, Model>);
static_assert(!std::is_invocable_v<decltype(&Plan::rebuilds), Plan, LayerId, StageId, Model>);
static_assert(std::is_invocable_v<decltype(&Seating::holds), Seating, StageId, VirtualStageId>);
static_assert(!std::is_invocable_v<decltype(&Seating::holds), Seating, VirtualStageId, StageId>);

// Nor is one kind the index of a table by another.
static_assert(IndexedBy<decltype(Plan::layers), VirtualStageId> && IndexedBy<decltype(Plan::layers), int>);
static_assert(!IndexedBy<decltype(Plan::layers), StageId> && !IndexedBy<const decltype(Plan::layers), StageId>);
static_assert(!IndexedBy<decltype(Plan::device), PositionId>);

// They cost what an int costs, and wider numbers do not become one unseen.
static_assert(sizeof(StageId) == sizeof(int) && std::is_trivially_copyable_v<StageId>);
static_assert(std::is_constructible_v<StageId, std::int64_t> && std::is_constructible_v<StageId, std::size_t>);

TEST_CASE("an id counts and calculates as an int, and becomes another kind by name alone") {
  StageId k = 2;
  CHECK(k++ == 2);
  CHECK(++k == 4);
  CHECK(k-- == 4);
  CHECK(--k == 2);
  CHECK((k += 3) == 5);
  CHECK((k -= 1) == 4);
  CHECK(3 * k + 1 == 13);
  CHECK(StageId{} == 0);
  CHECK(as<PositionId>(k) == 4);

  Indexed<StageId, int> table(6, 7);
  table[k] = 1;
  CHECK(table == std::vector{7, 7, 7, 7, 1, 7});
  table = std::vector{3, 4};
  CHECK(std::as_const(table)[StageId{1}] == 4);
}

}  // namespace
}  // namespace pipewright::tests
