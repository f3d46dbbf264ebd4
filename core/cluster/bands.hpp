// What a `band` says of a figure, and the figure somewhere in its band.
//
// In nine of ten cases the true rate lies between rate * (1 - band) and rate * (1 + band). A place in the band is -1 at
// its lower end, 0 at the stated figure and 1 at its upper end; a place that is normal with a deviation of 1 / 1.645
// makes the logarithm of the rate normal, on each side with the width that the band has there:
//
//     factor(band, place) = (1 + band)^place  at places >= 0,   (1 - band)^-place  below
//
// band 0.3: 0.7 at -1, 1.3 at 1, sqrt(1.3) = 1.14 at 0.5.                                tests/core/bands_test.cpp
// A larger rate is faster, so times (of the host, of starts, latencies) are divided by the factor.
#pragma once

#include "core/cluster/cluster.hpp"

namespace pipewright::core {

constexpr double kSigmas90 = 1.645;  // 90 % of a normal distribution lie within so many standard deviations

// Of what is priced and states no band: assumed.
constexpr double kHostBand = 0.5;     // hosts and frameworks differ by a factor of two
constexpr double kLinkBand = 0.3;     // pairs inside a node: messages take 0.8 to 2.5 times what the bandwidth says
constexpr double kNetworkBand = 0.3;  // NICs reach 0.65 to 0.92 of their rate by kind of network

double band_factor(double band, double place);

// Everything at one place of its band. Shares are at most 1, and nothing is faster than a link's or NIC's nominal rate:
// above its stated figures a network reaches more of it (`share`). Throws OverflowError where a time passes 2^62 ns.
void move(Efficiency& efficiency, double place);
void move(CollectiveCurve& curve, double place);
void move(MessageCurve& curve, double place);
void move(HostTimes& host, double place);
void move(NodeLinks& links, double place);
void move(Network& network, double place);

}  // namespace pipewright::core
