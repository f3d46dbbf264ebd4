// The whole training: days, device-hours, energy, money, and what failures add.
#include "core/answers/campaign.hpp"

#include <cmath>
#include <memory>

#include <doctest/doctest.h>

#include "core/answers/report.hpp"

using namespace pipewright::tests;

namespace {

constexpr Time kSecond{1'000'000'000};
constexpr Time kMinute = 60 * kSecond, kHour = 3600 * kSecond;

CampaignLength length(CampaignLength::Of of, double amount) {
  return {of, amount, "so much", Place{"s.yaml", 9, 3}};
}

// Eight devices of 3.00 an hour and 400 W, a batch of 64 in 2 s with a bubble of 25 %.
struct Question {
  Scenario scenario;
  Plan plan;
  Report report;
  CampaignRequest request;

  Question() {
    scenario.cluster.devices_per_node = 8;
    scenario.cluster.device.price_per_hour = 3;
    scenario.cluster.device.power = Power{400};
    plan.stages = 8, plan.replicas.assign(8, 1), plan.global_batch_size = 64;
    for (int i = 0; i < 8; ++i) {
      plan.device.push_back(i);
      report.workers.push_back({.id = i, .device = i, .busy = 3 * kSecond});
    }
    report.step_time = 2 * kSecond, report.bubble_fraction = 0.25;
    request.length = length(CampaignLength::Of::Samples, 1e6);
  }
  Campaign answer() {
    scenario.campaign = std::make_shared<CampaignRequest>(request);
    return campaign(scenario, plan, report).value();
  }
  std::string refusal() {
    scenario.campaign = std::make_shared<CampaignRequest>(request);
    try {
      check_campaign(scenario);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("The whole training: a million samples of 64 in 2 s are 15625 steps and 8.68 hours") {
  const Campaign answer = Question().answer();
  CHECK(answer.steps == 15625);
  CHECK(answer.duration == doctest::Approx(31250));
  CHECK(answer.days() == doctest::Approx(31250.0 / 86400));
  CHECK(answer.device_hours == doctest::Approx(69.4444));
  CHECK(*answer.cost == doctest::Approx(208.333));
  CHECK(answer.energy->value == doctest::Approx(8 * 400 * 0.75 * 31250));  // 20.83 kWh
  CHECK(answer.energy_most->value == doctest::Approx(8 * 400 * 31250.0));
  REQUIRE(answer.missing.size() == 1);
  CHECK(answer.missing[0].starts_with("goodput: cluster.node.device.mtbf is not given"));
}

TEST_CASE("a step that is not full is a step") {
  Question question;
  question.request.length = length(CampaignLength::Of::Samples, 65);
  CHECK(question.answer().steps == 2);
}

TEST_CASE("tokens and epochs are counted in samples") {
  Question question;
  question.scenario.training.sequence_length = 2048;
  question.request.length = length(CampaignLength::Of::Tokens, 2048e6);
  CHECK(question.answer().steps == 15625);
  question.request.length = length(CampaignLength::Of::Epochs, 2);
  question.request.samples_per_epoch = 500'000;
  CHECK(question.answer().steps == 15625);
}

// [Megatron21] section 5.1: GPT-3 of 175 G parameters on 300 G tokens, 1024 A100 at 140 TFLOP/s: 34 days, from
// 8 T P / (n X) seconds. A step of 1536 sequences of 2048 tokens at that rate.
TEST_CASE("GPT-3 takes 34 days on 1024 A100 at the published rate") {
  Question question;
  const double per_step = 8.0 * 1536 * 2048 * 175e9 / (1024 * 140e12);
  question.report.step_time = Time{std::llround(per_step * 1e9)};
  question.plan.global_batch_size = 1536;
  question.scenario.training.sequence_length = 2048;
  question.request.length = length(CampaignLength::Of::Tokens, 300e9);
  CHECK(std::round(question.answer().days()) == 34);
}

TEST_CASE("a key that is missing is named, with the way out, where the question must be answered") {
  Question question;
  question.request.place = Place{"s.yaml", 8, 5};
  question.scenario.cluster.device.price_per_hour.reset();
  CHECK(question.answer().missing[0].starts_with("cost: cluster.node.device.price_per_hour is not given"));
  CHECK(!question.answer().cost);
  question.request.ask = {CampaignQuestion::Cost};
  CHECK(question.refusal() ==
        "s.yaml:8:5: campaign: asks for cost, but cluster.node.device.price_per_hour is not given; write it, or "
        "--price for all devices, e.g. --price 2.50");
  question.request.price_per_hour = 2;
  CHECK(question.refusal().empty());
  question.request.ask = {CampaignQuestion::Goodput};
  CHECK(question.refusal().find("cluster.node.device.mtbf is not given") != std::string::npos);
  question.request.mtbf = 50000 * kHour;
  CHECK(question.refusal().find("campaign.checkpoint is not given") != std::string::npos);
  question.request.checkpoint = kMinute;
  CHECK(question.refusal().find("campaign.restart is not given") != std::string::npos);
  question.request.restart = 5 * kMinute;
  CHECK(question.refusal().empty());
  question.request.length = length(CampaignLength::Of::Tokens, 1e9);
  CHECK(question.refusal().starts_with("s.yaml:9:3: campaign.length: \"so much\" counts tokens, but"));
  question.request.length = length(CampaignLength::Of::Epochs, 3);
  CHECK(question.refusal().find("campaign.samples_per_epoch") != std::string::npos);
}

TEST_CASE("the price and the failures of the campaign take the place of the devices' own") {
  Question question;
  question.request.price_per_hour = 30;
  CHECK(*question.answer().cost == doctest::Approx(2083.33));
  question.scenario.cluster.device.mtbf = 100 * kHour;
  question.answer();
  CHECK(*mtbf_of(question.scenario, question.plan) == Time{45'000'000'000'000});  // 100 h / 8 = 12.5 h
  question.request.mtbf = 800 * kHour;
  question.answer();
  CHECK(*mtbf_of(question.scenario, question.plan) == 100 * kHour);
}

// Two devices of the first class, six of the other, which draw and fail twice as much.
TEST_CASE("of two classes each counts for itself") {
  Question question;
  Cluster& cluster = question.scenario.cluster;
  cluster.nodes = 4, cluster.devices_per_node = 2;
  DeviceClass other{.name = "old", .nodes = 3, .device = cluster.device};
  cluster.device.mtbf = 100 * kHour;
  other.device.mtbf = 50 * kHour, other.device.power = Power{800}, other.device.price_per_hour = 1;
  cluster.others.push_back(other);
  const Campaign answer = question.answer();
  CHECK(*answer.cost == doctest::Approx((2 * 3 + 6 * 1) * 31250 / 3600.0));
  CHECK(answer.energy->value == doctest::Approx((2 * 400 + 6 * 800) * 0.75 * 31250));
  CHECK(seconds(*mtbf_of(question.scenario, question.plan)) == doctest::Approx(100 * 3600 / 14.0));
  cluster.others[0].device.mtbf.reset();
  CHECK(question.answer().missing[0].starts_with("goodput: cluster.other_nodes.old.device.mtbf is not given"));
}

TEST_CASE("the best checkpoint interval by Young and Daly") {
  CHECK(seconds(young_interval(kMinute, kHour)) == doctest::Approx(657.267));
  CHECK(seconds(daly_interval(kMinute, kHour)) == doctest::Approx(617.876));
  CHECK(daly_interval(3 * kHour, kHour) == kHour);
}

// [Daly06] figures 3 to 5: R = 10 min, delta = 5 min, M = 24 h, 6 h, 15 min.
TEST_CASE("Daly's published intervals are 117, 57 and 9.1 minutes") {
  const auto minutes = [](Time mtbf) { return seconds(daly_interval(5 * kMinute, mtbf)) / 60; };
  CHECK(std::round(minutes(24 * kHour)) == 117);
  CHECK(std::round(minutes(6 * kHour)) == 57);
  CHECK(std::round(10 * minutes(15 * kMinute)) == 91);
}

TEST_CASE("goodput by formula: 76.2 % with failures every hour") {
  CHECK(goodput_by_formula(10 * kMinute, kMinute, 5 * kMinute, kHour) == doctest::Approx(0.762075));
  // Hardly any failures: training over training and checkpoints.
  CHECK(goodput_by_formula(9 * kMinute, kMinute, Time{}, 1'000'000 * kHour) == doctest::Approx(0.9));
  CHECK(goodput_by_formula(kMinute, 300 * kHour, kHour, kSecond) == 0);
}

TEST_CASE("no interval of a grid is better than Daly's by more than a thousandth") {
  for (const Time mtbf : {kHour, 5 * kHour, 48 * kHour})
    for (const Time checkpoint : {kMinute, 5 * kMinute}) {
      const double daly = goodput_by_formula(daly_interval(checkpoint, mtbf), checkpoint, kMinute, mtbf);
      for (double factor = 0.5; factor < 2; factor += 0.05) {
        const Time interval{std::llround(static_cast<double>(daly_interval(checkpoint, mtbf).value) * factor)};
        CHECK(goodput_by_formula(interval, checkpoint, kMinute, mtbf) < daly * 1.001);
      }
    }
}

TEST_CASE("with failures the training takes longer by its goodput") {
  Question question;
  question.request.mtbf = 8 * kHour, question.request.checkpoint = kMinute, question.request.restart = 5 * kMinute;
  question.request.interval = 10 * kMinute;
  const Campaign answer = question.answer();
  CHECK(answer.goodput->mtbf == kHour);
  CHECK(answer.goodput->formula == doctest::Approx(0.762075));
  CHECK(*answer.days_expected() == doctest::Approx(answer.days() / 0.762075));
  CHECK(*answer.cost_expected() == doctest::Approx(*answer.cost / 0.762075));
  CHECK(answer.goodput->failures == doctest::Approx(31250 / 0.762075 / 3600));
}

TEST_CASE("quantiles lie on the line between neighbours") {
  const Quantiles some = quantiles({10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(some.p5 == doctest::Approx(0.5));
  CHECK(some.p50 == doctest::Approx(5));
  CHECK(some.p95 == doctest::Approx(9.5));
  CHECK(quantiles({3}).p95 == 3);
}

TEST_CASE("HFU counts the forwards that are repeated") {
  Scenario scenario;
  scenario.model.layers.resize(2);
  scenario.model.layers[0].flops = Flops{100}, scenario.model.layers[1].flops = Flops{200};
  Plan plan;
  plan.stages = 2, plan.replicas = {1, 1}, plan.layers = {{0, 1}, {1, 2}};
  plan.recompute = {Recompute::Full, Recompute::Full};
  CHECK(*hardware_flop_utilization(scenario, plan, 0.3) == doctest::Approx(0.4));
  plan.recompute = {Recompute::Full, Recompute::None};  // 100 of 900 more
  CHECK(*hardware_flop_utilization(scenario, plan, 0.3) == doctest::Approx(0.3 * 1000 / 900));
  plan.recompute = {Recompute::None, Recompute::None};
  CHECK(!hardware_flop_utilization(scenario, plan, 0.3));
  CHECK(!hardware_flop_utilization(scenario, plan, std::nullopt));
}
