#include "core/answers/loss_grid.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("Losses are gathered in windows of equal length; one that is not full is left out") {
  const std::vector<LossWindow> all = loss_windows({4, 2, 3, 1, 5, 3}, 6, 10, 3);
  REQUIRE(all.size() == 3);
  CHECK(all[0].samples == 20);
  CHECK(all[0].loss == 3);
  CHECK(all[2].samples == 60);
  CHECK(all[2].loss == 4);
  CHECK(loss_windows({4, 2, 3}, 6, 10, 3).size() == 1);  // the second window has one of its two steps
  CHECK(loss_windows({4, 2, 3}, 3, 10, 20).size() == 3);
  CHECK(loss_windows({}, 5, 10).empty());
}

// Two variants x two learning rates x three seeds; one run ends early.
TEST_CASE("Runs that differ in their seed alone are one curve with a mean and a range") {
  LossGrid grid;
  grid.question.variants = {"gpipe", "pipedream"};
  grid.question.axes = {{"run.learning_rate", {"0.1", "0.2"}, {}}, {"run.seed", {"1", "2", "3"}, {}}};
  for (std::int64_t point = 0; point < grid.question.points(); ++point) {
    const auto seed = static_cast<double>(point % 3);
    grid.rows.push_back({point, {{8, 4 + seed}, {16, 2 + seed}}, ""});
  }
  grid.rows[4].windows.pop_back();
  grid.rows[4].failed = "the loss is not a number";
  const std::vector<LossCurve> curves = loss_curves(grid);
  REQUIRE(curves.size() == 4);
  CHECK(curves[0].variant == 0);
  CHECK(curves[1].variant == 1);
  CHECK(curves[1].values == std::vector<std::size_t>{0});
  REQUIRE(curves[0].at.size() == 2);
  CHECK(curves[0].at[0].mean == 5);
  CHECK(curves[0].at[0].least == 4);
  CHECK(curves[0].at[0].largest == 6);
  CHECK(curves[0].failed == 0);
  // gpipe at 0.2: seed 2 ended after the first window
  CHECK(curves[2].failed == 1);
  CHECK(curves[2].runs == 3);
  CHECK(curves[2].at[1].runs == 2);
  CHECK(curves[2].at[1].mean == 3);
}
