// What a sweep of many points says in the end, on rows written by hand.
#include "io/writers/sweep_answer.hpp"

#include <string>

#include <doctest/doctest.h>

#include "io/writers/sweep.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

std::size_t lines_with(const std::string& text, const std::string& part) {
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at = text.find('\n', at))
    ++lines;
  return lines;
}

// batches x reserves: the batch says the samples/s, the reserve nothing; batch 1 does not fit, batch 0 is no scenario.
Sweep of(int batches, int reserves) {
  Sweep sweep;
  sweep.question.file = "s.yaml", sweep.question.variants = {"base"};
  SweepAxis batch{"training.global_batch_size", {}, {}}, reserve{"cluster.node.device.reserve", {}, {}};
  for (int b = 0; b < batches; ++b)
    batch.texts.push_back(std::to_string(b)), batch.amounts.push_back(Magnitude{static_cast<double>(b), Unit::None});
  for (int r = 0; r < reserves; ++r)
    reserve.texts.push_back(std::to_string(r) + " GiB"),
        reserve.amounts.push_back(Magnitude{static_cast<double>(r), Unit::Byte});
  sweep.question.axes = {batch, reserve};
  for (int point = 0; point < batches * reserves; ++point) {
    SweepRow& row = sweep.rows.emplace_back();
    const int b = point / reserves;
    row.point = point;
    row.outcome = b == 0   ? SweepRow::Outcome::Invalid
                  : b == 1 ? SweepRow::Outcome::DoesNotFit
                           : SweepRow::Outcome::Fits;
    if (b == 0) row.reason = "1 stages for " + std::to_string(point) + " layers";
    if (b == 1) row.reason = "stage 0 needs " + std::to_string(point) + ".5 GiB (stash 3.0) of 2.0 GiB";
    if (b > 0) row.step_time = Time{1'000'000}, row.samples_per_s = b == 1 ? 1000 : b;
  }
  return sweep;
}

}  // namespace

TEST_CASE("A sweep of many points ends with how many fit and the best of them, keys named") {
  const std::string text = sweep_text(of(10, 3), {});
  CHECK(contains(text, "points        24 fit, 3 do not fit, 3 cannot be\n"));
  CHECK(contains(text, "best          samples/s\n"));
  CHECK(contains(text, "9.000     global_batch_size 9, reserve 0 GiB (and 2 other points alike)\n"));
  CHECK(contains(text, "5.000     global_batch_size 5,"));
  CHECK_FALSE(contains(text, "global_batch_size 4,"));      // five
  CHECK_FALSE(contains(text, "global_batch_size 1, "));     // it does not fit
  CHECK_FALSE(contains(sweep_text(of(8, 3), {}), "best"));  // 24 rows are looked over
}

TEST_CASE("The best rows are those of the first metric, least where less is better") {
  Sweep sweep = of(10, 3);
  sweep.question.metrics = {SweepFigure::StepTime};
  sweep.rows[20].step_time = Time{500'000};
  const std::vector<BestRow> best = best_rows(sweep, 5);
  REQUIRE(best.size() == 2);
  CHECK(best[0].row->point == 20);
  CHECK(best[0].alike == 0);
  CHECK(best[1].alike == 22);  // the 23 others that fit
}

TEST_CASE("A table of more than 200 rows is cut to the first that fit, and says how all are shown") {
  const Sweep sweep = of(67, 3);  // 201
  const std::string text = sweep_text(sweep, {});
  CHECK(contains(text, "the first 40 points that fit; 161 rows are left out: --all shows them, -o all.csv"));
  CHECK_FALSE(contains(text, " 0  0 GiB"));
  CHECK_FALSE(contains(text, " 1  0 GiB"));
  CHECK(contains(sweep_text(of(2, 101), {}), "the first 40 points that have figures; 162 rows are left out"));
  const std::string all = sweep_text(sweep, {}, SweepTable::All);
  CHECK_FALSE(contains(all, "left out"));
  CHECK(lines_with(all, " GiB ") > 201);
  CHECK_FALSE(contains(sweep_text(of(66, 3), {}), "left out"));  // 198
}

TEST_CASE("Many reasons that differ in figures only are one") {
  const std::string text = sweep_text(of(3, 20), {});
  CHECK(contains(text, "20 points, such as global_batch_size 0, reserve 0 GiB: 1 stages for 0 layers (the others"));
  CHECK(lines_with(text, "points, such as") == 2);
  CHECK(lines_with(sweep_text(of(3, 4), {}), " layers\n") == 4);  // few are told one by one
}

TEST_CASE("JSON has the counts and the best rows") {
  const std::string json = sweep_json(of(10, 3));
  CHECK(contains(json, "\"does_not_fit\": 3"));
  CHECK(contains(json, "\"figure\": \"samples_per_s\""));
  CHECK(contains(json, "\"alike\": 2"));
}

TEST_CASE("A plot of more lines than it draws has those that reach furthest, and none without figures") {
  const std::string svg = sweep_svg(of(40, 3), {"cluster.node.device.reserve", ""});
  CHECK(contains(svg, ">global_batch_size 39</text>"));
  CHECK(contains(svg, ">global_batch_size 24</text>"));
  CHECK_FALSE(contains(svg, ">global_batch_size 23</text>"));
  CHECK_FALSE(contains(svg, ">global_batch_size 1</text>"));  // it does not fit, for all its 1000 samples/s
  CHECK(contains(svg, "23 more lines, which do not reach as far, are not drawn"));
  CHECK(contains(svg, "1 line has no figures"));
}

TEST_CASE("The key with most numbers is to the right, wherever it stands; the other one makes lines") {
  const std::string svg = sweep_svg(of(4, 9), {});  // reserve, the second key
  CHECK(contains(svg, ">cluster.node.device.reserve"));
  CHECK(contains(svg, ">global_batch_size 3</text>"));
  CHECK(contains(sweep_svg(of(9, 4), {}), ">training.global_batch_size"));
}

TEST_CASE("Keys beyond two, and beyond one where there are variants, make panels on one scale") {
  Sweep sweep = of(8, 3);
  sweep.question.variants = {"a", "b"};
  const std::size_t half = sweep.rows.size();
  for (std::size_t i = 0; i < half; ++i) {
    sweep.rows.push_back(sweep.rows[i]);
    sweep.rows.back().point += static_cast<std::int64_t>(half);
    sweep.rows.back().samples_per_s *= 2;
  }
  const std::string svg = sweep_svg(sweep, {});
  CHECK(contains(svg, ">training.global_batch_size"));
  for (const char* const panel : {">reserve 0 GiB</text>", ">reserve 1 GiB</text>", ">reserve 2 GiB</text>"})
    CHECK(contains(svg, panel));
  CHECK(lines_with(svg, ">reserve ") == 3);
  CHECK(contains(svg, ">a</text>"));
  CHECK(contains(svg, ">b</text>"));
  CHECK(lines_with(svg, ">1,000</text>") == 1);  // of the scale: once per row of panels
  const std::size_t at = svg.find("width=\"") + 7;
  CHECK(std::stod(svg.substr(at)) <= 1176);
}

TEST_CASE("A line that lies on another one is dashed, and its marks are inside of the other's") {
  Sweep sweep = of(8, 1);
  sweep.question.variants = {"a", "b"};
  const std::size_t half = sweep.rows.size();
  for (std::size_t i = 0; i < half; ++i) {
    sweep.rows.push_back(sweep.rows[i]);
    sweep.rows.back().point += static_cast<std::int64_t>(half);
    if (i >= half / 2) sweep.rows.back().samples_per_s *= 2;
  }
  const std::string svg = sweep_svg(sweep, {});
  CHECK(lines_with(svg, "class=\"s s1 over\"") == 2);  // one in the legend
  CHECK(lines_with(svg, "class=\"s s1\"") >= 1);
  CHECK(lines_with(svg, "class=\"s s0 over\"") == 0);
  CHECK(lines_with(svg, "r=\"1.4\"") == half / 2 - 1);  // the first has no figures
}

TEST_CASE("A scale begins at 0, unless all figures are near the largest and differ by more than its lines can show") {
  const auto with = [](double first, double second) {
    Sweep sweep = of(4, 1);
    for (SweepRow& row : sweep.rows)
      row.outcome = SweepRow::Outcome::Fits, row.step_time = Time{1'000'000},
      row.samples_per_s = row.point % 2 == 0 ? first : second;
    return sweep_svg(sweep, {});
  };
  CHECK(lines_with(with(100, 800), ">0</text>") == 2);  // of both axes
  CHECK(lines_with(with(700, 800), ">0</text>") == 1);
  CHECK(contains(with(700, 800), "samples/s; the scale does not begin at 0</text>"));
  CHECK(lines_with(with(1000, 999.9999999999999), ">0</text>") == 2);
}

TEST_CASE("Figures of a scale have separators of thousands") {
  CHECK(contains(sweep_svg(of(4, 3), {}), ">1,000</text>"));
}
