// What is loaded into a device that cannot look at it is looked at before.
#include "runtime/data.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/backends/cpu.hpp"
#include "runtime/transports/local.hpp"
#include "tests/runtime/run_case.hpp"

using namespace pipewright;
using namespace pipewright::runtime_test;

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
