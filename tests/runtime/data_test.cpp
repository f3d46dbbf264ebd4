// What is loaded into a device that cannot look at it is looked at before.
#include "runtime/data.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/interpreter.hpp"
#include "runtime/transports/local.hpp"
#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// Samples in which one token, or one label, is another number.
class Wrong final : public Data {
 public:
  Wrong(const Data& good, const SampleShape& shape, std::int64_t sample, std::int64_t token, std::int64_t label)
      : good_(good), shape_(shape), sample_(sample), token_(token), label_(label) {}
  std::string name() const override { return "wrong"; }
  std::uint64_t contents() const override { return 0; }
  void input(std::int64_t sample, void* to) const override {
    good_.input(sample, to);
    if (sample == sample_ && token_ != 0) static_cast<std::int64_t*>(to)[shape_.values - 1] = token_;
  }
  void labels(std::int64_t sample, std::int64_t* to) const override {
    good_.labels(sample, to);
    if (sample == sample_ && label_ != 0) to[0] = label_;
  }

 private:
  const Data& good_;
  SampleShape shape_;
  std::int64_t sample_, token_, label_;
};

}  // namespace

TEST_CASE("Weights that several threads draw, piece by piece, are those of their places") {
  ChunkCode code;
  const ParameterTensor normal{.elements = 5'000'001, .initial = Initial::Normal, .bound = 0.02};
  const ParameterTensor one{.elements = 3, .initial = Initial::One};
  const std::int64_t behind = 4 * normal.elements + 60;  // aligned; what lies between stays zero
  code.parameters = {{normal, 2, 0, 0}, {one, 2, behind, behind}, {normal, 7, behind + 64, behind + 64}};
  std::vector<float> block(static_cast<std::size_t>((behind + 64) / 4 + normal.elements));
  const auto mover = host_mover();
  draw_weights(code, 5, *mover, reinterpret_cast<std::byte*>(block.data()));
  std::int64_t wrong = 0;
  for (const auto& [layer, number, offset] : {std::tuple{2, 0, std::int64_t{0}}, {7, 0, behind + 64}})
    for (std::int64_t i = 0; i < normal.elements; ++i)
      wrong += block[static_cast<std::size_t>(offset / 4 + i)] == initial_value(normal, 5, layer, number, i) ? 0 : 1;
  CHECK(wrong == 0);
  for (std::int64_t i = normal.elements; i < (behind + 64) / 4; ++i)
    wrong += block[static_cast<std::size_t>(i)] == (i >= behind / 4 && i < behind / 4 + 3 ? 1.0F : 0.0F) ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("Several loads are measured on the same workers, each made once") {
  const RunCase run({"training.micro_batches=2"});
  int made = 0;
  const BackendMaker counted([&](WorkerId) { return ++made, cpu_backend(); });
  LayerRounds rounds(run.run_plan, counted, *run.data, one_step(1));
  const auto one = rounds.measured(0, {1});
  CHECK(made == 1);
  CHECK(one[0].steps.empty());
  CHECK(one[0].layer_ns.empty());
  CHECK(one[1].layer_ns.size() > 1);
  const auto all = rounds.measured(0);
  CHECK(made == run.run_plan.plan->workers());
  CHECK(all[0].steps.front().number == 1);  // the first does not count
  CHECK(all[1].steps.front().number > one[1].steps.back().number);
}

TEST_CASE("data: a token or a label outside of the model's range ends the run before a device sees it") {
  const RunCase run({"training.micro_batches=2"});
  const SampleShape shape = sample_shape(run.run_plan.code);
  REQUIRE(shape.vocabulary == 256);
  const auto failure = [&](std::int64_t sample, std::int64_t token, std::int64_t label) -> std::string {
    const Wrong data(*run.data, shape, sample, token, label);
    const auto endpoints = local_transport(run.run_plan, {.spin = false, .timeout_s = 60}, {});
    try {
      execute(run.run_plan, cpu_backend, data, endpoints, one_step(2));
    } catch (const RunFailed& failed) {
      return failed.what();
    }
    return "";
  };
  CHECK(failure(3, 0, 0) == "");
  CHECK(failure(3, 255, 255) == "");
  CHECK(failure(3, 256, 0) ==
        "worker 0 at op start: token 256 of sample 3 lies outside of the vocabulary of 256; the "
        "data do not fit the model");
  CHECK(failure(5, -1, 0).find("token -1 of sample 5") != std::string::npos);  // of the second step
  CHECK(failure(2, 0, 256).find("worker 1 at op start: label 256 of sample 2") != std::string::npos);
}

TEST_CASE("data: one worker's reference looks at them, too") {
  const RunCase run({"training.micro_batches=2"});
  const Wrong data(*run.data, sample_shape(run.run_plan.code), 1, 1000, 0);
  CHECK_THROWS_WITH(sequential_gradients(run.run_plan, cpu_backend, data, one_step()),
                    doctest::Contains("token 1000 of sample 1"));
}
