// The block `campaign:`: lengths, prices, failures, and what is refused.
#include "core/answers/campaign.hpp"

#include <string>

#include <doctest/doctest.h>

#include "io/read/campaign_text.hpp"
#include "io/read/read_scenario.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

std::string scenario_with(const std::string& campaign) {
  return "model: {layers: [{name: a, forward: 1 ms, backward: 2 ms, activation: 1 MB, parameters: 1000}]}\n"
         "cluster: {nodes: 1, node: {devices: 1, device: {memory: 1 GB}, links: {kind: ideal}}}\n"
         "training: {micro_batches: 4, micro_batch_size: 1}\n"
         "plan: {stages: 1}\n"
         "campaign: " +
         campaign + "\n";
}

Scenario read(const std::string& campaign) {
  const Scratch folder;
  return read_scenario(folder.write("s.yaml", scenario_with(campaign)), {});
}

std::string campaign_refusal(const std::string& campaign) {
  try {
    read(campaign);
  } catch (const InputError& error) {
    const std::string text = error.what();
    return text.substr(text.find("s.yaml") + 7);
  }
  return "";
}

}  // namespace

TEST_CASE("an amount is a number with a suffix of thousands") {
  CHECK(parse_amount("15T").value == 15e12);
  CHECK(parse_amount("300 B").value == 300e9);
  CHECK(parse_amount("300G").value == 300e9);
  CHECK(parse_amount("4.9e9").value == 4.9e9);
  CHECK(parse_amount("0.5").value == 0.5);
  CHECK(parse_amount("0").why == "must be more than 0");
  CHECK(parse_amount("1e22").why == "is more than 1e21; write a smaller number");
  CHECK(parse_amount("1e12T").why == "is more than 1e21; write a smaller number");
  for (const char* bad : {"", "T", "fifteen", "15 tokens", "15TT", "nan", "-3"})
    CHECK_MESSAGE(!parse_amount(bad).why.empty(), bad);
}

TEST_CASE("a length is an amount of tokens, samples or epochs") {
  const CampaignLength length = parse_length("15T tokens").value.value();
  CHECK(length.of == CampaignLength::Of::Tokens);
  CHECK(length.amount == 15e12);
  CHECK(length.text == "15T tokens");
  CHECK(parse_length("1.2 M samples").value->amount == 1.2e6);
  CHECK(parse_length("90 epochs").value->of == CampaignLength::Of::Epochs);
  for (const char* bad : {"15T", "tokens", "15 token", "15T steps", " ", ""})
    CHECK_MESSAGE(!parse_length(bad).why.empty(), bad);
}

TEST_CASE("the block is read, and written as it was read") {
  const Scenario scenario = read(
      "{length: 1M samples, price_per_hour: 2.5, mtbf: 50000 h, checkpoint: 60 s, restart: 10 min, seed: 7, "
      "device_spread: 0.02, ask: [cost, goodput]}");
  const CampaignRequest& campaign = *scenario.campaign;
  CHECK(campaign.length->amount == 1e6);
  CHECK(*campaign.price_per_hour == 2.5);
  CHECK(*campaign.mtbf == Time{180'000'000'000'000'000});
  CHECK(*campaign.checkpoint == Time{60'000'000'000});
  CHECK(*campaign.restart == Time{600'000'000'000});
  CHECK(campaign.seed == 7);
  CHECK(campaign.ask.size() == 2);
  const std::string text = resolved_yaml(scenario);
  CHECK(text.find("1M samples") != std::string::npos);
  CHECK(text.find("ask: [cost, goodput]") != std::string::npos);
  CHECK(text.find("device_spread: 0.02") != std::string::npos);
}

TEST_CASE("what is not a campaign is refused where it stands") {
  CHECK(
      campaign_refusal("{length: 15T}") ==
      "5:20: campaign.length: \"15T\" is not a length of a training; write e.g. 15T tokens, 10M samples or 90 epochs");
  CHECK(campaign_refusal("{length: 1T tokens}")
            .starts_with("5:20: campaign.length: \"1T tokens\" counts tokens, but nothing"));
  CHECK(campaign_refusal("{length: 3 epochs}").find("campaign.samples_per_epoch") != std::string::npos);
  CHECK(campaign_refusal("{length: [1]}").find("campaign.length") != std::string::npos);
  CHECK(campaign_refusal("{lenght: 1M samples}").find("length") != std::string::npos);
  CHECK(campaign_refusal("{price_per_hour: 0}").find("must be more than 0") != std::string::npos);
  CHECK(campaign_refusal("{price_per_hour: free}").find("campaign.price_per_hour") != std::string::npos);
  CHECK(campaign_refusal("{checkpoint: 0 s}").find("must be more than 0") != std::string::npos);
  CHECK(campaign_refusal("{checkpoint: 9000 h}").find("more than a year") != std::string::npos);
  CHECK(campaign_refusal("{mtbf: 50000}").find("has no unit") != std::string::npos);
  CHECK(campaign_refusal("{device_spread: 0.5}").find("at most 0.3") != std::string::npos);
  CHECK(campaign_refusal("{trials: 5}").find("must be 20 to 100000") != std::string::npos);
  CHECK(campaign_refusal("{seed: -1}").find("campaign.seed") != std::string::npos);
  CHECK(campaign_refusal("{ask: [money]}").find("known: cost, energy, goodput, spread") != std::string::npos);
  CHECK(campaign_refusal("{ask: cost}").find("a list of questions") != std::string::npos);
  CHECK(campaign_refusal("7").find("campaign") != std::string::npos);
}

TEST_CASE("what must be answered and lacks a key is refused; the rest is answered without it") {
  CHECK(campaign_refusal("{length: 1M samples}").empty());
  CHECK(campaign_refusal("{length: 1M samples, ask: [cost]}")
            .find("cluster.node.device.price_per_hour is not given; write it, or --price") != std::string::npos);
  CHECK(campaign_refusal("{length: 1M samples, ask: [energy]}").find("cluster.node.device.power is not given") !=
        std::string::npos);
  CHECK(campaign_refusal("{length: 1M samples, ask: [goodput]}").find("cluster.node.device.mtbf is not given") !=
        std::string::npos);
  CHECK(campaign_refusal("{ask: [cost]}").find("campaign.length is not given") != std::string::npos);
  CHECK(campaign_refusal("{length: 1M samples, price_per_hour: 1, ask: [cost]}").empty());
}
