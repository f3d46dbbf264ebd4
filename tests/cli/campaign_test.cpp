// The whole training on the command line: answers, errors that name the key, and the same bytes for the same seed.
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"

using namespace pipewright::tests;
using nlohmann::json;

namespace {

const std::string kQuick = "scenarios/quickstart.yaml";
const std::string kGpt2 = "scenarios/what_if/gpt2-8x4090.yaml";

ProgramRun simulate(const std::string& scenario, std::vector<std::string> more) {
  more.insert(more.begin(), {"simulate", scenario});
  return run_program(more);
}

std::string refusal(const std::vector<std::string>& more) {
  const ProgramRun run = simulate(kQuick, more);
  CHECK(run.status == 2);
  return run.err;
}

}  // namespace

TEST_CASE("a million samples of the quickstart: days, device-hours and cost follow from the step") {
  const ProgramRun run = simulate(kQuick, {"--samples", "1M", "--price", "3", "--json"});
  REQUIRE(run.status == 0);
  const json whole = json::parse(run.out).at("campaign");
  CHECK(whole.at("steps") == 15625);  // of 64 samples, 34.6 ms each, on four devices
  CHECK(whole.at("duration_s").get<double>() == doctest::Approx(540.625));
  CHECK(whole.at("device_hours").get<double>() == doctest::Approx(4 * 540.625 / 3600));
  CHECK(whole.at("cost").get<double>() == doctest::Approx(3 * 4 * 540.625 / 3600));
  // V100: 300 W, busy 69.36 % of the time: 24 of 34.6 ms.
  CHECK(whole.at("energy_j").get<double>() == doctest::Approx(4 * 300 * 540.625 * 24 / 34.6));
  CHECK(whole.at("goodput").is_null());
}

TEST_CASE("the report says what cannot be told and which key it needs") {
  const ProgramRun run = simulate(kQuick, {"--samples", "1M"});
  REQUIRE(run.status == 0);
  CHECK(run.out.find("the whole training") != std::string::npos);
  CHECK(run.out.find("cluster.node.device.price_per_hour is not given") != std::string::npos);
  CHECK(run.out.find("cluster.node.device.mtbf is not given") != std::string::npos);
  CHECK(run.out.find("upper estimate") != std::string::npos);
}

TEST_CASE("without the question nothing is said of the whole training") {
  CHECK(simulate(kQuick, {}).out.find("the whole training") == std::string::npos);
  CHECK(simulate(kQuick, {"--price", "3"}).out.find("campaign: has no length") != std::string::npos);
}

TEST_CASE("what is asked for and lacks a key is an error that names it and the way out") {
  CHECK(refusal({"--samples", "1M", "--ask", "cost"})
            .find("cluster.node.device.price_per_hour is not given; write it, or --price for all devices") !=
        std::string::npos);
  CHECK(refusal({"--samples", "1M", "--ask", "goodput", "--mtbf", "50000h"}).find("--checkpoint 60s") !=
        std::string::npos);
  CHECK(refusal({"--tokens", "1T"}).find("training.sequence_length") != std::string::npos);
  CHECK(refusal({"--epochs", "3"}).find("campaign.samples_per_epoch") != std::string::npos);
  CHECK(refusal({"--tokens", "1T", "--samples", "3"}).find("give one of them") != std::string::npos);
  CHECK(refusal({"--samples", "lots"}).find("--samples: \"lots\" is not a number; write e.g. 15T") !=
        std::string::npos);
  CHECK(refusal({"--samples", "-5"}).find("--samples") != std::string::npos);
  CHECK(refusal({"--samples", "1M", "--price", "cheap"}).find("--price: \"cheap\" is not a number") !=
        std::string::npos);
  CHECK(refusal({"--samples", "1M", "--price", "0"}).find("must be more than 0") != std::string::npos);
  CHECK(refusal({"--samples", "1M", "--mtbf", "5"}).find("--mtbf: \"5\" has no unit") != std::string::npos);
  CHECK(refusal({"--samples", "1M", "--ask", "price"}).find("known: cost, energy, goodput, spread") !=
        std::string::npos);
  CHECK(refusal({"--samples", "1M", "--seed", "x"}).find("--seed") != std::string::npos);
}

TEST_CASE("failures of all devices give the goodput, and the same seed gives the same bytes") {
  const std::vector<std::string> asked = {"--mtbf", "500h", "--checkpoint", "60s", "--restart", "10min", "--json"};
  std::vector<std::string> again = asked, other = asked;
  other.insert(other.end(), {"--seed", "2"});
  const ProgramRun run = simulate(kGpt2, asked);
  REQUIRE(run.status == 0);
  const json good = json::parse(run.out).at("campaign").at("goodput");
  CHECK(good.at("mtbf_s").get<double>() == 500 * 3600.0 / 8);
  CHECK(good.at("by_formula").get<double>() > 0.9);
  CHECK(simulate(kGpt2, again).out == run.out);
  CHECK(simulate(kGpt2, other).out != run.out);
}

TEST_CASE("a range holds what is stated, also where better devices settle into longer steps, and says so") {
  const ProgramRun run =
      simulate("scenarios/what_if/vgg16-16xv100.yaml",
               {"--set", "plan.replicas=[15, 1]", "--set", "plan.partition={layers: [31, 8]}", "--json"});
  REQUIRE(run.status == 0);
  const json document = json::parse(run.out), band = document.at("interval_90");
  const double step = document.at("step_time_s"), low = band.at("step_time_low_s"), high = band.at("step_time_high_s");
  CHECK(low <= step);
  CHECK(step < high);  // at the upper ends of the bands, too
  CHECK(band.at("samples_per_s_low").get<double>() < band.at("samples_per_s_high").get<double>());
  const std::string warnings = document.at("warnings").dump();
  CHECK(warnings.find("better figures do not always make shorter steps here") != std::string::npos);
  CHECK(warnings.find("MFU is above 100 %") != std::string::npos);
}

TEST_CASE("step time and memory are drawn within the bands, and every distribution is named") {
  const ProgramRun run = simulate(kGpt2, {"--ask", "spread,energy", "--json"});
  REQUIRE(run.status == 0);
  const json document = json::parse(run.out), spread = document.at("campaign").at("spread");
  const json step = spread.at("step_time_s"), band = document.at("interval_90");
  CHECK(step.at("p5").get<double>() < step.at("p50").get<double>());
  CHECK(step.at("p50").get<double>() < step.at("p95").get<double>());
  CHECK(step.at("p5").get<double>() == doctest::Approx(band.at("step_time_low_s").get<double>()).epsilon(0.05));
  CHECK(step.at("p95").get<double>() == doctest::Approx(band.at("step_time_high_s").get<double>()).epsilon(0.05));
  CHECK(spread.at("step_time_distribution").get<std::string>().find("90 % interval") != std::string::npos);
  CHECK(spread.at("memory_distribution").get<std::string>().find("uniform") != std::string::npos);
  CHECK(spread.at("probability_not_fitting") == 0);
}

TEST_CASE("a ranking has days and cost of every plan, and the objective is money") {
  const std::vector<std::string> asked = {"plan", kQuick,    "--set", "plan=auto",   "--samples",
                                          "1M",   "--price", "3",     "--objective", "cost"};
  std::vector<std::string> document = asked;
  document.emplace_back("--json");
  const ProgramRun run = run_program(document);
  REQUIRE(run.status == 0);
  const json plans = json::parse(run.out).at("plans");
  double before = 0;
  for (const json& plan : plans) {
    const double cost = plan.at("campaign").at("cost");
    CHECK(cost >= before);
    before = cost;
  }
  const ProgramRun text = run_program(asked);
  CHECK(text.out.find("days") != std::string::npos);
  CHECK(text.out.find("cost") != std::string::npos);
  CHECK(text.out.find("the whole training") != std::string::npos);
}

TEST_CASE("a sweep has columns of the whole training, and says which key one of them lacks") {
  const ProgramRun run = run_program({"sweep", "scenarios/what_if/h100-or-a100.yaml", "--json", "--jobs", "2"});
  REQUIRE(run.status == 0);
  const json document = json::parse(run.out);
  for (const json& row : document.at("rows")) {
    CHECK(row.at("cost").get<double>() > 0);
    CHECK(row.at("days_expected").get<double>() > row.at("days").get<double>());
    CHECK(row.at("cost_expected").get<double>() ==
          doctest::Approx(row.at("cost").get<double>() / row.at("goodput").get<double>()));
  }
}

TEST_CASE("a sweep that is asked for the whole training shows days and cost, with failures where they are asked") {
  const auto head = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"sweep", "scenarios/what_if/bandwidth.yaml", "--width", "300", "--tokens", "15T"});
    const std::string out = run_program(more).out;
    const std::size_t at = out.find("speed-up");
    return out.substr(at, out.find('\n', at) - at);
  };
  CHECK(head({}).find("days") != std::string::npos);
  CHECK(head({}).find("cost") == std::string::npos);
  CHECK(head({"--price", "2.5"}).find("cost") != std::string::npos);
  CHECK(head({"--price", "2.5"}).find("with failures") == std::string::npos);
  const std::string all = head({"--price", "2.5", "--mtbf", "50000 h", "--checkpoint", "60s", "--restart", "10min"});
  CHECK(all.find("days with failures") != std::string::npos);
  CHECK(all.find("cost with failures") != std::string::npos);
}

TEST_CASE("a plot of a figure that no row has is refused with the key that it needs, once the rows are told") {
  const ScratchFolder folder;
  const auto plot = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"sweep", "scenarios/what_if/bandwidth.yaml", "-o", folder.path("x.svg"), "--y"});
    return run_program(more);
  };
  const ProgramRun none = plot({"cost"});
  CHECK(none.status == 2);
  CHECK(none.err.find("--y: no row has cost: campaign.length is not given; write it, or --tokens") !=
        std::string::npos);
  CHECK(none.out.find("samples/s") != std::string::npos);
  CHECK(folder.files().empty());
  CHECK(plot({"cost", "--tokens", "15T"}).err.find("price_per_hour is not given") != std::string::npos);
  CHECK(plot({"days", "--tokens", "15T"}).status == 0);
}

TEST_CASE("an option wins over the scenario's own block campaign, and leaves the rest of it") {
  const std::string text =
      file_text(source_folder() + "/" + kQuick) + "\ncampaign: {length: 9M samples, price_per_hour: 3}\n";
  const ProgramRun run = run_program({"simulate", "-", "--samples", "2M", "--json"},
                                     {.folder = {}, .input = text, .output_to = {}, .settings = {}});
  REQUIRE(run.status == 0);
  const auto campaign = nlohmann::json::parse(run.out).at("campaign");
  CHECK(campaign.at("length") == "2M samples");
  CHECK(campaign.at("cost").is_number());
}

// 4 stages of 30000 micro-batches: 8 ops and 6 messages each, and 40 million of them altogether.
TEST_CASE("a run that is drawn less often than campaign.trials says so, with both numbers") {
  const ProgramRun run = run_program({"simulate", kQuick, "--samples", "100M", "--set", "training.micro_batches=30000",
                                      "--set", "campaign.device_spread=0.05", "--width", "1000"});
  CHECK(run.status == 0);
  const std::string told = " draws of the 200 of campaign.trials (a step of so many ops is not simulated more often)";
  CHECK_MESSAGE(run.out.find(told) != std::string::npos, run.out);
}

TEST_CASE("an option of one value that says two, or another than --set, is refused") {
  const auto refusal = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", kQuick});
    const ProgramRun run = run_program(more);
    CHECK(run.status == 2);
    return run.err;
  };
  CHECK(refusal({"--samples", "15T", "--samples", "1T"}) ==
        "error: --samples: \"15T\" and \"1T\" are given; keep one of them\n");
  CHECK(refusal({"--schedule", "1f1b", "--schedule", "gpipe"}) ==
        "error: --schedule: \"1f1b\" and \"gpipe\" are given; keep one of them\n");
  CHECK(refusal({"--schedule", "1f1b", "--set", "plan.schedule=gpipe"}) ==
        "error: --schedule: \"1f1b\", and --set plan.schedule=gpipe says another; keep one of them\n");
  CHECK(refusal({"--samples", "1M", "--price", "3", "--set", "campaign.price_per_hour=4"}) ==
        "error: --price: --set campaign.price_per_hour=4 says another; keep one of them\n");
  CHECK(refusal({"--tokens", "1M", "--set", "campaign={trials: 50, length: 2M samples}"}) ==
        "error: --tokens: --set campaign={trials: 50, length: 2M samples} says another; keep one of them\n");
  CHECK(run_program({"simulate", kQuick, "--samples", "1M", "--set", "campaign={trials: 50}"}).status == 0);
  CHECK(refusal({"--samples", "1M", "--ask", "cost", "--set", "campaign.ask=[goodput]"}) ==
        "error: --ask: --set campaign.ask=[goodput] says another; keep one of them\n");
  CHECK(run_program({"simulate", kQuick, "--schedule", "1f1b", "--schedule", "1f1b", "--set", "plan.schedule=1f1b"})
            .status == 0);
}

TEST_CASE("advice of the options of the whole training is of their size, and does not offer 0 where it is refused") {
  const auto refusal = [](const std::string& option, const std::string& value) {
    return run_program({"simulate", kQuick, option, value}).err;
  };
  CHECK(refusal("--price", "-3") ==
        "error: --price: \"-3\" is negative; write the price of one device for one hour, in one currency throughout, "
        "more than 0 and less than 1e9, e.g. 2.50\n");
  CHECK(refusal("--restart", "-3 s") ==
        "error: --restart: \"-3 s\" is negative; write the time from a failure until the training goes on, 0 or more, "
        "at most a year, e.g. \"10 min\"\n");
  CHECK(refusal("--mtbf", "50000") ==
        "error: --mtbf: \"50000\" has no unit; write the mean time between failures of one device, more than 0, e.g. "
        "\"50000 h\"\n");
  CHECK(refusal("--tokens", "-5") == "error: --tokens: \"-5\" is negative; write more than 0, e.g. 15T\n");
  CHECK(refusal("--tokens", "15e12.5").find("write a whole number behind the e") != std::string::npos);
  const std::string no_length = refusal("--tokens", "15");  // the quickstart does not say what a sample has
  CHECK(no_length.find("--tokens 15") != std::string::npos);
  CHECK(no_length.find("--set campaign") == std::string::npos);
  const ProgramRun one = run_program({"simulate", kQuick, "--set", "training.sequence_length=100", "--tokens", "1"});
  CHECK(one.out.find("1 token · less than 1 sample of 100 tokens · 1 step of 64") != std::string::npos);
}

// What a value is, its law and an example are the same words wherever it is written; only the place differs.
TEST_CASE("wrong prices, failures and powers are told alike for options, keys of the campaign and keys of a device") {
  const auto clause = [](const std::vector<std::string>& more, const std::string& value) {
    std::vector<std::string> arguments = {"simulate", kQuick, "--samples", "1M"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramRun run = run_program(arguments);
    CHECK(run.status == 2);
    const std::string quoted = "\"" + value + "\" ";
    const std::size_t at = run.err.find(quoted);
    REQUIRE_MESSAGE(at != std::string::npos, run.err);
    return run.err.substr(at + quoted.size());
  };
  const auto set = [&](const std::string& key, const std::string& value) {
    return clause({"--set", key + "=" + value}, value);
  };
  const std::string device = "cluster.node.device.";
  for (const std::string wrong : {"-3", "0", "free", "3 USD", "1e9", "1e999"}) {
    const std::string told = clause({"--price", wrong}, wrong);
    CHECK_MESSAGE(told.find("the price of one device for one hour") != std::string::npos, told);
    CHECK_MESSAGE(told.find("more than 0 and less than 1e9, e.g. 2.50") != std::string::npos, told);
    CHECK(set("campaign.price_per_hour", wrong) == told);
    CHECK(set(device + "price_per_hour", wrong) == told);
  }
  for (const std::string wrong : {"-3 h", "0 h", "50000", "3 W", "often", "50000 hrs"}) {
    const std::string told = clause({"--mtbf", wrong}, wrong);
    CHECK_MESSAGE(told.find("failures of one device, more than 0, e.g. \"50000 h\"") != std::string::npos, told);
    CHECK(set("campaign.mtbf", wrong) == told);
    CHECK(set(device + "mtbf", wrong) == told);
  }
  for (const std::string wrong : {"-3 W", "0 W", "700", "3 s", "much", "700 Watt"}) {
    const std::string told = set(device + "power", wrong);
    CHECK_MESSAGE(told.find("what one device draws at most, more than 0, e.g. \"700 W\"") != std::string::npos, told);
  }
  for (const std::string wrong : {"-3 s", "0 s", "60", "2 W", "9000 h"})
    for (const char* key : {"checkpoint", "interval"}) {
      const std::string told = set(std::string("campaign.") + key, wrong);
      CHECK_MESSAGE(told.find("more than 0, at most a year, e.g. \"") != std::string::npos, told);
    }
}

TEST_CASE("an interval between checkpoints shorter than a step is warned of, by simulate and by plan") {
  const std::vector<std::string> failing = {"--samples",    "1M",  "--mtbf",    "50000 h",
                                            "--checkpoint", "1 s", "--restart", "1 min"};
  const auto told = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), failing.begin(), failing.end());
    const ProgramRun run = run_program(arguments);
    CHECK(run.status == 0);
    return run.out + run.err;
  };
  const std::string asked =
      "campaign.interval: the time between two checkpoints of 0.034 s is shorter than one step, 0.0346 s";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"simulate", kQuick}, {"plan", kQuick, "--set", "plan.partition=auto"}}) {
    std::vector<std::string> shorter = command, longer = command;
    shorter.insert(shorter.end(), {"--set", "campaign.interval=34 ms", "--width", "400"});
    longer.insert(longer.end(), {"--set", "campaign.interval=35 ms", "--width", "400"});
    CHECK_MESSAGE(told(shorter).find(asked) != std::string::npos, told(shorter));
    CHECK(told(longer).find("shorter than one step") == std::string::npos);
    CHECK(told(command).find("shorter than one step") == std::string::npos);
  }
  // [Daly06] for checkpoints of 1 ns and failures every 4 ms on four devices: far below a step.
  const ProgramRun best = simulate(
      kQuick, {"--samples", "1M", "--mtbf", "16 ms", "--checkpoint", "1 ns", "--restart", "1 ns", "--width", "400"});
  CHECK_MESSAGE(best.out.find("the best time between two checkpoints of") != std::string::npos, (best.out + best.err));
}

TEST_CASE("two scenarios are compared in days and money, and pages show the whole training") {
  const ProgramRun run =
      run_program({"compare", kQuick, kQuick, "--set-b", "plan.schedule=gpipe", "--samples", "1M", "--price", "3"});
  REQUIRE(run.status == 0);
  CHECK(run.out.find("days of the whole training") != std::string::npos);
  CHECK(run.out.find("cost") != std::string::npos);
}
