#include "core/answers/campaign.hpp"

#include <algorithm>
#include <cmath>

#include "core/answers/report.hpp"

namespace pipewright::core {
namespace {

constexpr double kHour = 3600, kSecond = 1e-9;

bool asks(const CampaignRequest& request, CampaignQuestion question) {
  return std::find(request.ask.begin(), request.ask.end(), question) != request.ask.end();
}

std::string in_quotes(const std::string& text) {
  return "\"" + text + "\"";
}

// Samples of the length; throws where a key is missing.
double samples_of(const Scenario& scenario, const CampaignLength& length) {
  const std::string stated = in_quotes(length.text) + " ";
  switch (length.of) {
    case CampaignLength::Of::Samples: return length.amount;
    case CampaignLength::Of::Tokens:
      if (!scenario.training.sequence_length)
        throw InputError(length.place, "campaign.length",
                         stated + "counts tokens, but nothing says how many a sample has; write training." +
                             "sequence_length, or count samples (--samples)");
      return length.amount / static_cast<double>(*scenario.training.sequence_length);
    case CampaignLength::Of::Epochs:
      if (!scenario.campaign->samples_per_epoch)
        throw InputError(length.place, "campaign.length",
                         stated +
                             "counts epochs, but nothing says how many samples one has; write campaign."
                             "samples_per_epoch (--set campaign.samples_per_epoch=1281167), or count "
                             "samples (--samples)");
      return length.amount * static_cast<double>(*scenario.campaign->samples_per_epoch);
  }
  return 0;
}

// "cluster.node.device.power is not given", of the first class of devices that has none; "": all have it.
std::string class_without(const Scenario& scenario, const char* key, const auto& has) {
  for (int c = 0; c < scenario.cluster.classes(); ++c)
    if (!has(c)) return device_key(scenario.cluster, c, key) + " is not given";
  return "";
}

std::string cost_lacks(const Scenario& scenario) {
  const std::string key =
      class_without(scenario, "price_per_hour", [&](int c) { return price_per_hour(scenario, c).has_value(); });
  return key.empty() ? "" : key + "; write it, or --price for all devices, e.g. --price 2.50";
}

std::string energy_lacks(const Scenario& scenario) {
  const std::string key =
      class_without(scenario, "power", [&](int c) { return scenario.cluster.device_of(c).power.has_value(); });
  return key.empty() ? "" : key + "; write it, e.g. 700 W";
}

std::string goodput_lacks(const Scenario& scenario) {
  const CampaignRequest& request = *scenario.campaign;
  const std::string key = class_without(scenario, "mtbf", [&](int c) { return mtbf(scenario, c).has_value(); });
  if (!key.empty()) return key + "; write it, or --mtbf for all devices, e.g. --mtbf \"50000 h\"";
  if (!request.checkpoint)
    return "campaign.checkpoint is not given; write how long the training stands still while one is written "
           "(--checkpoint 60s)";
  if (!request.restart)
    return "campaign.restart is not given; write how long it takes from a failure until the training goes on "
           "(--restart 10min)";
  return "";
}

void refuse(const CampaignRequest& request, const char* question, const std::string& lacks) {
  if (!lacks.empty())
    throw InputError(request.place, "campaign", std::string("asks for ") + question + ", but " + lacks);
}

int devices_of(const Plan& plan, const Cluster& cluster, int device_class) {
  const int workers = cluster.classes() == 1 ? plan.workers() : workers_on_class(plan, cluster, device_class);
  return workers * plan.tensor_parallel;
}

// Sum over the plan's devices of a figure of their class.
double sum_of(const Scenario& scenario, const Plan& plan, const auto& figure) {
  double sum = 0;
  for (int c = 0; c < scenario.cluster.classes(); ++c)
    sum += devices_of(plan, scenario.cluster, c) * figure(c);
  return sum;
}

// Watts of all devices in the mean over the run, idle ones drawing nothing: of several classes, each weighs as much as
// its workers compute.
double computing_watts(const Scenario& scenario, const Plan& plan, const Report& report) {
  double busy = 0, weighted = 0;
  for (const WorkerReport& worker : report.workers) {
    const double time = static_cast<double>(worker.busy.value);
    busy += time;
    weighted += time * scenario.cluster.device_of(scenario.cluster.class_of(worker.device)).power->value;
  }
  return busy > 0 ? weighted / busy * plan.devices() * (1 - report.bubble_fraction) : 0;
}

GoodputReport goodput_of(const CampaignRequest& request, Time mtbf, double duration) {
  GoodputReport goodput;
  goodput.mtbf = mtbf;
  goodput.checkpoint = *request.checkpoint, goodput.restart = *request.restart;
  goodput.young = young_interval(goodput.checkpoint, mtbf);
  goodput.daly = daly_interval(goodput.checkpoint, mtbf);
  goodput.interval = request.interval.value_or(goodput.daly);
  goodput.formula = goodput_by_formula(goodput.interval, goodput.checkpoint, goodput.restart, mtbf);
  goodput.failures = goodput.formula > 0 ? duration / goodput.formula / seconds(mtbf) : 0;
  return goodput;
}

void add_known(Campaign& campaign, const Report& report) {
  campaign.known.push_back("duration: steps x the predicted step time; no evaluation, no loading of data, no pauses");
  if (report.range && report.step_time > Time{}) {
    const double low = campaign.duration * ratio(report.range->fastest, report.step_time) / 86400;
    const double high = campaign.duration * ratio(report.range->slowest, report.step_time) / 86400;
    campaign.days_low = low, campaign.days_high = high;
  }
  if (campaign.cost) campaign.known.push_back("cost: the price given x the hours of the plan's devices, idle or not");
  if (campaign.energy)
    campaign.known.push_back(
        "energy: an upper estimate of what computing takes: thermal design power x the time that devices compute; "
        "without hosts, network, cooling and what idle devices draw");
  if (campaign.goodput)
    campaign.known.push_back(
        "goodput: failures at a constant rate, independent of one another; every mean time and duration as given");
}

}  // namespace

std::string device_key(const Cluster& cluster, int device_class, const char* key) {
  const std::string node =
      device_class == 0 ? "cluster.node"
                        : "cluster.other_nodes." + cluster.others[static_cast<std::size_t>(device_class - 1)].name;
  return node + ".device." + key;
}

Quantiles quantiles(std::vector<double> values) {
  PP_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const auto above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.05), at(0.5), at(0.95)};
}

std::optional<double> Campaign::days_expected() const {
  if (!goodput || !(goodput->formula > 0)) return std::nullopt;
  return days() / goodput->formula;
}

std::optional<double> Campaign::cost_expected() const {
  if (!cost || !goodput || !(goodput->formula > 0)) return std::nullopt;
  return *cost / goodput->formula;
}

void check_campaign(const Scenario& scenario) {
  if (!scenario.campaign) return;
  const CampaignRequest& request = *scenario.campaign;
  if (request.length) samples_of(scenario, *request.length);
  if (!request.length && !request.ask.empty())
    throw InputError(request.place, "campaign",
                     "asks for figures of the whole training, but campaign.length is not "
                     "given; write e.g. length: 300 G tokens (--tokens 300G)");
  if (asks(request, CampaignQuestion::Cost)) refuse(request, "cost", cost_lacks(scenario));
  if (asks(request, CampaignQuestion::EnergyUse)) refuse(request, "energy", energy_lacks(scenario));
  if (asks(request, CampaignQuestion::Goodput)) refuse(request, "goodput", goodput_lacks(scenario));
}

std::optional<double> price_per_hour(const Scenario& scenario, int device_class) {
  if (scenario.campaign && scenario.campaign->price_per_hour) return scenario.campaign->price_per_hour;
  return scenario.cluster.device_of(device_class).price_per_hour;
}

std::optional<Time> mtbf(const Scenario& scenario, int device_class) {
  if (scenario.campaign && scenario.campaign->mtbf) return scenario.campaign->mtbf;
  return scenario.cluster.device_of(device_class).mtbf;
}

std::optional<Time> mtbf_of(const Scenario& scenario, const Plan& plan) {
  double rate = 0;  // failures per nanosecond
  for (int c = 0; c < scenario.cluster.classes(); ++c) {
    const std::optional<Time> one = mtbf(scenario, c);
    if (!one) return std::nullopt;
    rate += devices_of(plan, scenario.cluster, c) / static_cast<double>(one->value);
  }
  return Time{std::max<std::int64_t>(1, rounded(1 / rate, "the mean time between failures of all devices"))};
}

Time young_interval(Time checkpoint, Time mtbf) {
  const double delta = static_cast<double>(checkpoint.value), mean = static_cast<double>(mtbf.value);
  return {std::max<std::int64_t>(1, rounded(std::sqrt(2 * delta * mean), "the checkpoint interval"))};
}

Time daly_interval(Time checkpoint, Time mtbf) {
  const double delta = static_cast<double>(checkpoint.value), mean = static_cast<double>(mtbf.value);
  if (delta >= 2 * mean) return mtbf;
  const double x = delta / (2 * mean);
  const double tau = std::sqrt(2 * delta * mean) * (1 + std::sqrt(x) / 3 + x / 9) - delta;
  return {std::max<std::int64_t>(1, rounded(tau, "the checkpoint interval"))};
}

double goodput_by_formula(Time interval, Time checkpoint, Time restart, Time mtbf) {
  const double tau = seconds(interval), mean = seconds(mtbf);
  const double longer = mean * std::exp(seconds(restart) / mean) * std::expm1((tau + seconds(checkpoint)) / mean) / tau;
  return std::isfinite(longer) && longer > 0 ? 1 / longer : 0;
}

std::optional<Campaign> campaign(const Scenario& scenario, const Plan& plan, const Report& report) {
  if (!scenario.campaign || !scenario.campaign->length || !(report.step_time > Time{})) return std::nullopt;
  check_campaign(scenario);
  const CampaignRequest& request = *scenario.campaign;
  Campaign result;
  result.length = request.length->text;
  result.samples = samples_of(scenario, *request.length);
  result.steps = std::ceil(result.samples / static_cast<double>(plan.global_batch_size));
  result.duration = result.steps * static_cast<double>(report.step_time.value) * kSecond;
  result.devices = plan.devices();
  result.device_hours = static_cast<double>(result.devices) * result.duration / kHour;
  if (const std::string lacks = cost_lacks(scenario); lacks.empty())
    result.cost = sum_of(scenario, plan, [&](int c) { return *price_per_hour(scenario, c); }) * result.duration / kHour;
  else
    result.missing.push_back("cost: " + lacks);
  if (const std::string lacks = energy_lacks(scenario); lacks.empty()) {
    result.energy = Energy{computing_watts(scenario, plan, report) * result.duration};
    const auto watts = [&](int c) { return scenario.cluster.device_of(c).power->value; };
    result.energy_most = Energy{sum_of(scenario, plan, watts) * result.duration};
  } else {
    result.missing.push_back("energy: " + lacks);
  }
  if (const std::string lacks = goodput_lacks(scenario); lacks.empty())
    result.goodput = goodput_of(request, *mtbf_of(scenario, plan), result.duration);
  else
    result.missing.push_back("goodput: " + lacks);
  add_known(result, report);
  return result;
}

}  // namespace pipewright::core
