// What the published PipeDream profiles are promised to give. A program of its own, so that without the data (env
// PIPEWRIGHT_TEST_DATA, default ../shared/data beside the source tree) the test runner shows it as skipped, with the
// reason, and not as passed.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/cost/cost_model.hpp"
#include "io/import/pipedream.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/find_plan.hpp"
#include "planner/graph_cut.hpp"
#include "planner/partitioners/min_max.hpp"
#include "planner/price.hpp"
#include "planner/replicated.hpp"
#include "tests/io/scratch.hpp"
#include "tests/papers/pipedream_plans.hpp"
#include "tests/support/down_sets.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

// Every test here needs the folder: without it the whole program ends as "skipped" (77, Automake's and Meson's code).
std::string profiles() {
  const char* data = std::getenv("PIPEWRIGHT_TEST_DATA");
  const std::string folder = (data ? data : source_folder() + "/../shared/data") + "/pipedream-profiles/";
  if (!std::filesystem::exists(folder)) {
    std::printf("skipped: no PipeDream profiles in %s (PIPEWRIGHT_TEST_DATA names the folder above)\n", folder.c_str());
    std::exit(77);
  }
  return folder;
}

struct Totals {
  std::int64_t forward = 0, backward = 0, parameters = 0;
};
Totals totals(const Model& model) {
  Totals sum;
  for (const Layer& layer : model.layers) {
    sum.forward += layer.forward->value;
    sum.backward += layer.backward->value;
    sum.parameters += layer.parameters;
  }
  return sum;
}

}  // namespace

TEST_CASE("All seven published profiles load with their published totals") {
  struct Row {
    const char* name;
    std::int64_t batch;              // 0: derived from the input
    std::int64_t derived;            // what then comes out, and the stated one otherwise
    double forward_ms, backward_ms;  // without Input, one decimal, as published beside the profiles
    double parameters_mb;
  };
  const Row rows[] = {{"alexnet", 0, 256, 44.8, 40.5, 244.4},        {"vgg16", 0, 128, 233.9, 438.6, 553.4},
                      {"resnet50", 0, 128, 182.5, 260.9, 102.2},     {"densenet121", 0, 64, 177.4, 148.8, 31.9},
                      {"inception_v3", 0, 128, 289.3, 399.8, 108.6}, {"gnmt", 32, 32, 33.5, 55.9, 775.1},
                      {"gnmt_large", 128, 128, 182.6, 337.9, 1110.9}};
  const std::string folder = profiles();
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const auto batch = row.batch == 0 ? std::nullopt : std::optional(row.batch);
    const Model model = read_pipedream_profile(folder + row.name + ".txt", batch);
    const Totals sum = totals(model);
    CHECK(model.batch == row.derived);
    CHECK(static_cast<double>(sum.forward) * 1e-6 == doctest::Approx(row.forward_ms).epsilon(0.05 / row.forward_ms));
    CHECK(static_cast<double>(sum.backward) * 1e-6 == doctest::Approx(row.backward_ms).epsilon(0.05 / row.backward_ms));
    CHECK(static_cast<double>(sum.parameters) * 4e-6 ==
          doctest::Approx(row.parameters_mb).epsilon(0.05 / row.parameters_mb));
    const Scratch scratch;
    const Model back = read_model(scratch.write("m.yaml", model_yaml(model, row.name)));
    CHECK(totals(back).forward == sum.forward);
    CHECK(totals(back).parameters == sum.parameters);
    CHECK(back.layers.size() == model.layers.size());
  }
}

namespace {

struct ConvolutionTimes {
  std::vector<ConvolutionShape> shapes;
  std::vector<double> forward, backward;  // ms
};

// By the preset of the V100, of 128 images.
ConvolutionTimes priced(const Scenario& scenario) {
  const LayerCosts costs = CostModel(scenario).layers(128);
  ConvolutionTimes times;
  for (LayerId i = 0; i < std::ssize(scenario.model.layers); ++i) {
    const Work& work = scenario.model.works[static_cast<std::size_t>(scenario.model.layers[i].work)];
    if (work.operators.empty() || work.operators[0].convolution.channels == 0) continue;
    times.shapes.push_back(work.operators[0].convolution);
    times.forward.push_back(static_cast<double>(costs.forward[i].value) * 1e-6);
    times.backward.push_back(static_cast<double>(costs.backward[i].value) * 1e-6);
  }
  return times;
}

// As profiled, less what the profiler adds to each layer: 0.27 ms to a forward, 0.11 to a backward (with networks
// other than VGG-16, where the layers are small).
ConvolutionTimes profiled(const Model& model) {
  ConvolutionTimes times;
  for (const Layer& layer : model.layers) {
    if (layer.name.find("Conv2d") == std::string::npos) continue;
    times.forward.push_back(static_cast<double>(layer.forward->value) * 1e-6 - 0.27);
    times.backward.push_back(static_cast<double>(layer.backward->value) * 1e-6 - 0.11);
  }
  return times;
}

}  // namespace

// The profile's times are means over mini-batches, in the first of which the library tries its algorithms for every
// shape that it has not met before: those layers take 1.2 to 1.4 times as long as later ones of the same shape. So of
// layers of one shape all but the first count forward, all but the last backward.
TEST_CASE("VGG-16, which the curve of convolutions was not fitted to, repeats its layers as fast as the curve says") {
  const Scenario scenario = read_scenario(source_folder() + "/tests/papers/sixteen-v100.yaml",
                                          {.set = {"cluster.node.device=v100-sxm2-16g", "model={family: vgg16}"},
                                           .config_path = {source_folder() + "/configs"}});
  const ConvolutionTimes ours = priced(scenario),
                         theirs = profiled(read_pipedream_profile(profiles() + "vgg16.txt", 128));
  REQUIRE(ours.forward.size() == 13);
  REQUIRE(theirs.forward.size() == 13);
  double forward = 0, backward = 0;
  for (std::size_t i = 1; i < ours.shapes.size(); ++i) {
    if (!(ours.shapes[i] == ours.shapes[i - 1])) continue;
    forward += std::abs(ours.forward[i] / theirs.forward[i] - 1) / 4;
    backward += std::abs(ours.backward[i - 1] / theirs.backward[i - 1] - 1) / 4;
  }
  CHECK(forward < 0.05);   // 0.022; half of the peak, as other devices have it, is 3.5 times too slow
  CHECK(backward < 0.10);  // 0.067
}

// Down-sets of the profiles' graphs after layers without cost have joined their only input.
TEST_CASE("The published profiles have as many down-sets as were counted for them") {
  const std::pair<const char*, std::int64_t> rows[] = {
      {"resnet50", 239}, {"densenet121", 428}, {"gnmt", 57}, {"gnmt_large", 121}, {"inception_v3", 184'362}};
  const std::string folder = profiles();
  for (const auto& [name, count] : rows) {
    CAPTURE(name);
    const Model model = read_pipedream_profile(folder + name + ".txt", 128);
    std::vector<bool> free;
    for (const Layer& layer : model.layers)
      free.push_back(*layer.forward + *layer.backward == Time{});
    CHECK(count_down_sets(merged(model, free)) == count);
  }
}

namespace {

// Replicas per stage that PipeDream's optimizer chooses on `machines` workers of one level.
std::vector<int> replicas_chosen(const std::string& profile, std::int64_t batch, MachineLevel level, PipeDreamRule rule,
                                 PipeDreamTransfer transfer) {
  const Model model = read_pipedream_profile(profiles() + profile + ".txt", batch);
  ChainCosts chain;
  const std::vector<Bytes> over = bytes_over_cuts(model);
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    chain.compute.push_back(*model.layers[i].forward + *model.layers[i].backward);
    chain.parameters.push_back(Bytes{4 * model.layers[i].parameters});
    chain.boundary.push_back(over[i + 1]);
  }
  std::vector<int> replicas;
  for (const PipeDreamStage& stage : pipedream(chain, std::span(&level, 1), rule, transfer).stages)
    replicas.push_back(stage.replicas);
  return replicas;
}

}  // namespace

// The released program's answers, and those of the printed rule with transfers, which the paper publishes: 15-1.
TEST_CASE("PipeDream's rules choose the configurations that were published for them") {
  using enum PipeDreamRule;
  using enum PipeDreamTransfer;
  const auto at = [](int machines, double gigabytes) { return MachineLevel{machines, Bandwidth{gigabytes * 1e9}}; };
  CHECK(replicas_chosen("vgg16", 128, at(4, 1), Released, OverReceivers) == std::vector<int>{3, 1});
  CHECK(replicas_chosen("vgg16", 128, at(16, 1.25), Released, OverReceivers) == std::vector<int>{13, 2, 1});
  CHECK(replicas_chosen("vgg16", 128, at(16, 3), Released, OverReceivers) == std::vector<int>{15, 1});
  CHECK(replicas_chosen("alexnet", 256, at(16, 0.5), Released, OverReceivers) == std::vector<int>{15, 1});
  CHECK(replicas_chosen("vgg16", 128, at(16, 1.25), Released, None) == std::vector<int>{9, 1, 2, 1, 2, 1});
  for (const char* profile : {"vgg16", "alexnet"})
    for (const PipeDreamRule rule : {Sosp, Released, Ring})
      CHECK(replicas_chosen(profile, profile[0] == 'v' ? 128 : 256, at(16, 1.25), rule, Whole) ==
            std::vector<int>{15, 1});
}

// docs/how-it-works/model.md, "VGG-16, 15-1, by hand": stage 0 takes 331.192 ms of f + b and 0.327 ms of optimizer step
// per micro-batch, on 15 replicas: a cycle of 22.101 ms. Stage 1 takes 5.075 + 2.748 = 7.823 ms of it.
TEST_CASE("VGG-16 15-1 on PipeDream's own profile gives the figures that the documentation derives") {
  const ProgramRun run = run_program({"simulate", "scenarios/pipedream/vgg16-15-1.yaml", "--set",
                                      "model.pipedream_profile=" + profiles() + "vgg16.txt", "--json"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const auto answer = nlohmann::json::parse(run.out);
  const double cycle = answer.at("cycle_time_s").get<double>();
  CHECK(cycle == doctest::Approx((0.331192 + 0.000327) / 15).epsilon(1e-4));
  CHECK(answer.at("samples_per_s").get<double>() == doctest::Approx(64 / cycle).epsilon(1e-9));
  CHECK(answer.at("step_time_s").get<double>() == doctest::Approx(60 * cycle).epsilon(1e-9));
  // 15 workers always busy, the 16th for 7.823 of 22.101 ms.
  CHECK(answer.at("bubble_fraction").get<double>() == doctest::Approx(1 - (15 + 7.823 / 22.101) / 16).epsilon(0.01));
  const auto& stages = answer.at("stages");
  REQUIRE(stages.size() == 2);
  CHECK(stages[0].at("forward_s").get<double>() == doctest::Approx(0.229671 / 2).epsilon(1e-5));
  CHECK(stages[0].at("backward_s").get<double>() == doctest::Approx(0.432714 / 2).epsilon(1e-5));
  CHECK(stages[1].at("forward_s").get<double>() == doctest::Approx(0.004231 / 2).epsilon(2e-4));
  CHECK(stages[0].at("weight_versions") == 2);  // ceil(16 / 15)
  CHECK(stages[1].at("weight_versions") == 1);
  CHECK(stages[0].at("memory_bytes").at("weights").get<std::int64_t>() == 2 * 14'714'688 * std::int64_t{4});
}

namespace {

// Seconds per micro-batch, simulated.
double cycle_of(const Plan& plan, const CostModel& cost) {
  return static_cast<double>(plan.micro_batch_size) / price(plan, cost, Engine::Auto).report.samples_per_s;
}

}  // namespace

// Seven profiles, flat and in nodes of four, at two bandwidths; three planners each. PipeDream's optimizer does not look
// at memory unless asked: neither does this comparison.
TEST_CASE("On PipeDream's own profiles no plan of ours is slower than PipeDream's, nor below its lower bound") {
  using enum PipeDreamRule;
  using enum PipeDreamTransfer;
  const std::pair<const char*, int> taken_with[] = {{"vgg16", 128},      {"alexnet", 256},      {"resnet50", 128},
                                                    {"densenet121", 64}, {"inception_v3", 128}, {"gnmt", 32},
                                                    {"gnmt_large", 128}};
  int faster = 0;
  for (const auto& [profile, batch] : taken_with)
    for (const auto& [nodes, devices] : {std::pair(16, 1), std::pair(4, 4)})
      for (const std::string network : {"1.25 GB/s", "3.125 GB/s"}) {
        CAPTURE(profile);
        CAPTURE(nodes);
        CAPTURE(network);
        const std::string samples = std::to_string(batch);
        Scenario scenario = read_scenario(
            source_folder() + "/tests/papers/sixteen-v100.yaml",
            {.set = {"model={pipedream_profile: \"" + profiles() + profile + ".txt\", batch: " + samples +
                         ", name: " + profile + "}",
                     "training.micro_batch_size=" + samples, "cluster.nodes=" + std::to_string(nodes),
                     "cluster.node.devices=" + std::to_string(devices), "cluster.network.bandwidth=" + network},
             .config_path = {source_folder() + "/configs"}});
        scenario.cluster.device.memory = Bytes{std::int64_t{1} << 50};
        const CostModel cost(scenario);
        const Plan shell = find_plan(scenario, cost);
        const ReplicatedAnswer answer = replicated_plans(shell, cost, {.top = 1});
        REQUIRE(!answer.ranking.empty());
        CHECK(answer.gap() >= 0);
        const Plan& best = answer.ranking.front().plan;
        const double ours = cycle_of(best, cost);
        // VGG-16 at the bandwidth of cluster A is the paper's example for 15-1, which its own hierarchy cannot express.
        if (std::string_view(profile) == "vgg16" && network == "1.25 GB/s")
          CHECK(best.replicas == std::vector<int>{15, 1});
        for (const auto& [rule, transfer] : {std::pair(Sosp, Whole), std::pair(Released, OverReceivers)}) {
          double theirs = 0;
          for (const Plan& plan : pipedream_plans(shell, cost, rule, transfer))
            theirs = theirs == 0 ? cycle_of(plan, cost) : std::min(theirs, cycle_of(plan, cost));
          CHECK(ours <= theirs * (1 + 1e-6));  // whole nanoseconds
          faster += theirs > 1.02 * ours ? 1 : 0;
        }
      }
  CHECK(faster > 40);  // of 56
}

// 16 stages of one worker, without messages. The best order of ResNet-50 and of Inception v3 beats every cut of theirs.
TEST_CASE("All seven graphs are cut over all their down-sets, never worse than any cut of the order as given") {
  struct Row {
    const char* name;
    bool better;
  };
  const Row rows[] = {{"vgg16", false},       {"alexnet", false}, {"resnet50", true},   {"densenet121", false},
                      {"inception_v3", true}, {"gnmt", false},    {"gnmt_large", false}};
  const std::string folder = profiles();
  for (const auto& [name, better] : rows) {
    CAPTURE(name);
    const Model model = read_pipedream_profile(folder + name + ".txt", 128);
    GraphProblem problem;
    for (const Layer& layer : model.layers)
      problem.compute.push_back(*layer.forward + *layer.backward);
    problem.replicas.assign(16, 1);
    const auto cut = graph_cut(model, problem);
    REQUIRE(cut);
    CHECK(cut->exact());
    const Time as_given = bottleneck_of(model, problem, min_max(problem.compute, 16));
    CHECK(cut->bottleneck <= as_given);
    CHECK((cut->bottleneck < as_given) == better);
    GraphProblem there = problem;
    for (std::size_t i = 0; i < cut->order.size(); ++i)
      there.compute[i] = problem.compute[static_cast<std::size_t>(cut->order[i])];
    CHECK(bottleneck_of(reordered(model, cut->order), there, cut->layers) == cut->bottleneck);
  }
}

// `plan` tries the model's order, too, so that it is never slower; the scenario that it writes has the order in it.
TEST_CASE("plan.order: graph plans all seven graphs, never slower than their own order, and simulate agrees") {
  const std::string folder = profiles();
  const Scratch scratch;
  for (const char* name : {"vgg16", "alexnet", "resnet50", "densenet121", "inception_v3", "gnmt", "gnmt_large"}) {
    CAPTURE(name);
    const auto plan = [&](const std::string& order, const std::string& output) {
      const std::string yaml = "version: 1\nmodel: {pipedream_profile: \"" + folder + name +
                               ".txt\", batch: 128}\n"
                               "cluster: {node: {devices: 8, device: {memory: 100 GB}, links: {kind: mesh, bandwidth: "
                               "10 GB/s}}}\n"
                               "training: {micro_batch_size: 16, micro_batches: 16}\n"
                               "plan: {stages: 8, schedule: 1f1b, partition: auto, order: " +
                               order + "}\n";
      const ProgramRun run =
          run_program({"plan", "-", "--json", "--time-limit", "10min", "-o", output}, {.input = yaml});
      REQUIRE_MESSAGE(run.status == 0, run.err);
      return nlohmann::json::parse(run.out);
    };
    const auto own = plan("model", scratch.path("own.yaml")), best = plan("graph", scratch.path("best.yaml"));
    CHECK(best["plans"][0]["samples_per_s"] >= own["plans"][0]["samples_per_s"]);
    CHECK(best["layer_order"].get<std::string>().find("not exact") == std::string::npos);
    CHECK(best["bound"] > 0.0);
    const ProgramRun simulated = run_program({"simulate", scratch.path("best.yaml"), "--json"});
    REQUIRE_MESSAGE(simulated.status == 0, simulated.err);
    CHECK(nlohmann::json::parse(simulated.out)["samples_per_s"] == best["plans"][0]["samples_per_s"]);
  }
}
