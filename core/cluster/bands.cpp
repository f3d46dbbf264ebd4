#include "core/cluster/bands.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::core {
namespace {

void divide(Time& time, double factor) {
  time.value = rounded(static_cast<double>(time.value) / factor, "a time at the end of its band");
}

void raise(double& share, double factor) {
  share = std::min(1.0, share * factor);
}

}  // namespace

double band_factor(double band, double place) {
  return place >= 0 ? std::pow(1 + band, place) : std::pow(1 - band, -place);
}

void move(Efficiency& efficiency, double place) {
  const double factor = band_factor(efficiency.band, place);
  for (auto& [work, share] : efficiency.curve)
    raise(share, factor);
  if (efficiency.tiles) efficiency.tiles->sustained *= factor;
  for (AttentionKernel& kernel : efficiency.kernels) {
    const double own = band_factor(kernel.band.value_or(efficiency.band), place);
    for (AttentionCurve* each : {&kernel.forward, &kernel.backward})
      raise(each->share, own);
  }
}

void move(CollectiveCurve& curve, double place) {
  const double factor = band_factor(curve.band, place);
  for (double* start : {&curve.start, &curve.hop, &curve.large_start, &curve.large_hop})
    *start /= factor;
  for (double* share : {&curve.small, &curve.middle, &curve.large})
    raise(*share, factor);
  for (SwitchCurve& each : curve.in_switch) {
    each.start /= factor, each.hop /= factor;
    raise(each.share, factor);
  }
  for (AllToAllWay& each : curve.all_to_all) {
    each.start /= factor, each.hop /= factor;
    raise(each.share, factor);
  }
  if (curve.handed_on) raise(*curve.handed_on, factor);
}

void move(MessageCurve& curve, double place) {
  const double factor = band_factor(curve.band, place);
  curve.start /= factor, curve.middle /= factor;
  raise(curve.small, factor), raise(curve.large, factor);
}

void move(HostTimes& host, double place) {
  const double factor = band_factor(host.band.value_or(kHostBand), place);
  for (Time* time : {&host.operation, &host.collective, &host.skew, &host.pass, &host.message, &host.step,
                     &host.compiled, &host.graph_node})
    divide(*time, factor);
  if (host.backward) divide(*host.backward, factor);
}

void move(NodeLinks& links, double place) {
  const double factor = band_factor(links.band.value_or(kLinkBand), place);
  links.bandwidth.value *= std::min(1.0, factor);
  if (links.host_bandwidth) links.host_bandwidth->value *= factor;
  divide(links.latency, factor);
}

void move(Network& network, double place) {
  const double factor = band_factor(network.band.value_or(kNetworkBand), place);
  if (factor > 1)
    raise(network.share, factor);
  else
    network.bandwidth.value *= factor;
  divide(network.latency, factor);
}

}  // namespace pipewright::core
