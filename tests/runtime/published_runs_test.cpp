// Orders that PyTorch's schedules, DualPipe and Chimera write, read from their files and run for real on two to eight
// workers. A program of its own, so that without the data (env PIPEWRIGHT_TEST_DATA, default ../shared/data next to the
// source tree) the test runner shows it as skipped, with the reason, and not as passed.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/runtime/run_case.hpp"
#include "tests/runtime/sequential_steps.hpp"
#include "tests/support/published_schedules.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

using Row = PublishedRow;

// In the file each way has chunks of its own.
bool in_two_directions(const Row& order) {
  return order.at("placement") == "bidirectional";
}

// Sixteen small layers, for two to eight workers of up to eight chunks each.
std::vector<std::string> changes_for(const Row& order) {
  return {
      "model={name: chain, input_shape: [5], layers: [{name: body, repeat: 15, ops: [{op: linear, features: 5}, {op: "
      "tanh}]}, {name: loss, ops: [{op: linear, features: 5}, {op: cross_entropy}]}]}",
      "cluster.node.devices=8",
      "plan.schedule={file: " + published() + "orders/" + order.at("order") + "}",
      "plan.stages=" + order.at("K"),
      "plan.virtual_stages=" + std::string(in_two_directions(order) ? "1" : order.at("v")),
      "training.micro_batches=" + order.at("M")};
}

// By worker, the most forwards begun whose backward had not ended, as the clock of the run says.
std::string most_in_flight(const RunCase& run, const std::vector<WorkerResult>& workers) {
  std::string text;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const std::vector<Op>& ops = run.schedule.positions[static_cast<PositionId>(w)].compute;
    const std::vector<Span>& times = workers[w].steps.at(0).times.compute;
    REQUIRE(times.size() == ops.size());
    std::ptrdiff_t most = 0;
    for (const Span& now : times) {
      std::ptrdiff_t held = 0;
      for (std::size_t i = 0; i < ops.size(); ++i)
        held += (ops[i].kind == Kind::F && times[i].start <= now.start) -
                (rule(ops[i].kind).gradients && times[i].end <= now.start);
      most = std::max(most, held);
    }
    text += (w == 0 ? "" : " ") + std::to_string(most);
  }
  return text;
}

// Of PyTorch's and of those in two directions, the ones of two to eight workers, a layer or more for each chunk, and
// sixteen micro-batches at most.
std::vector<Row> small_orders() {
  std::vector<Row> orders = published_rows("manifest.csv");
  std::erase_if(orders, [](const Row& row) {
    return !row.at("source_repo").starts_with("pytorch") && row.at("function").find("pytorch") == std::string::npos &&
           !in_two_directions(row);
  });
  std::erase_if(orders, [](const Row& row) {
    return std::stoi(row.at("K")) > 8 || std::stoi(row.at("K")) * std::stoi(row.at("v")) > 16 ||
           std::stoi(row.at("M")) > 16;
  });
  return orders;
}

}  // namespace

TEST_CASE("Published orders run for real: the bits of one worker, memory as counted, as many in flight as published") {
  std::map<std::string, std::string> peaks;  // by order
  for (const Row& row : published_rows("cases.csv"))
    peaks[row.at("order")] = row.at("peak_until_w");
  std::map<std::string, int> ran;
  for (const Row& order : small_orders()) {
    CAPTURE(order.at("order"));
    std::vector<std::string> changes = changes_for(order);
    changes.emplace_back("model.input_tokens=null");  // which every RunCase has
    const RunCase run(changes);
    CHECK(most_in_flight(run, check_bits_of_one_worker(run, Wait::Block)) == peaks.at(order.at("order")));
    ++ran[order.at("schedule")];
  }
  CHECK(ran.size() == 6);  // looped_bfs, interleaved_zb, zbv_hand, dualpipev, dualpipe, chimera
  for (const auto& [schedule, count] : ran)
    CHECK(count >= 3);
}

TEST_CASE("run --check gradients says so of one order of each of these schedules") {
  std::map<std::string, Row> largest;
  for (const Row& order : small_orders())
    largest[order.at("schedule")] = order;
  for (const auto& [schedule, order] : largest) {
    CAPTURE(order.at("order"));
    std::vector<std::string> arguments = {"run", "scenarios/validation/two-stage-gpipe.yaml", "--check", "gradients"};
    for (const std::string& change : changes_for(order))
      arguments.insert(arguments.end(), {"--set", change});
    const ProgramRun run = run_program(arguments);
    CAPTURE(run.err);
    CHECK(run.status == 0);
    CHECK(run.out.starts_with("gradients: bit-identical to one worker's\n"));
    const int chunks = std::stoi(order.at("K")) * (in_two_directions(order) ? 1 : std::stoi(order.at("v")));
    CHECK(run.out.find("virtual stage " + std::string(chunks - 1 < 10 ? "  " : " ") + std::to_string(chunks - 1)) !=
          std::string::npos);
  }
}
