// What was measured of one GPU, and what follows from it: how long a pass of an operation takes at a size, on one of K
// equal groups of the GPU's SMs (a virtual device) while `busy` of the groups compute.
//
// A *series* is one pass of one operation at one precision on one such group: sizes with their times, and the formula
// that was fitted to them. A size that was measured takes the measured time; another one what the formula says:
//
//     waves     t = max(t0 + W (a + b depth), floor * values),   W = ceil(count * tiles / SMs),
//               tiles = ceil(rows / tile rows) * ceil(columns / tile columns)
//               products: the SMs work through tiles wave by wave, each wave walks along the depth; never faster than
//               the values that it reads and writes pass the memory
//     work      t = t0 + c * 2 count rows columns depth + d values        attention: products and softmax in a row
//     values    t = t0 + d values
//               what moves bytes. The same as a bandwidth that saturates, t = launch + S / bw(S) with
//               bw(S) = B S / (S + S_half): B = 1 / d, S_half = (t0 - launch) / d                          [Hockney94]
//
// 132 SMs, tiles of 128 x 128, 4096 x 4096 products of depth 1024: 1024 tiles, 8 waves. t0 = 5 us, a = 1 us,
// b = 10 ns: 5 + 8 (1 + 10.24) = 94.92 us.  tests/core/measured_device_test.cpp "A formula of waves"
//
// Each formula has two relative errors (one standard deviation), found by cross-validation: `common` is shared by sizes
// of one width (all layers of a model have it together), `independent` differs from size to size. Beyond the sizes that
// were measured both grow with the distance: error * (1 + sum over dimensions of |ln(size / nearest measured)|).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/cluster/measured_terms.hpp"
#include "core/units.hpp"

namespace pipewright::core {

// A pass of an operation by what its time depends on: `count` products of {rows, depth} x {depth, columns}, and how
// many values it reads and writes. Without a product: rows and columns of what it works on, depth 0.
struct OperationSize {
  std::int64_t count = 1, rows = 0, columns = 0, depth = 0;
  double values = 0;
  double work() const;  // 2 count rows columns depth
  bool operator==(const OperationSize&) const = default;
};

std::size_t coefficients_of(SizeTerms terms);  // 3 of waves and work, 2 of values

struct TimeFormula {
  SizeTerms terms = SizeTerms::Values;
  double fixed_ns = 0;
  double per_wave_ns = 0, per_wave_depth_ns = 0;  // waves
  std::int64_t tile_rows = 128, tile_columns = 128;
  double floor_ns_per_value = 0;
  double per_flop_ns = 0;                               // work
  double per_value_ns = 0;                              // work, values
  double at(const OperationSize& size, int sms) const;  // ns
  bool operator==(const TimeFormula&) const = default;
};
double waves(const TimeFormula& formula, const OperationSize& size, int sms);

struct MeasuredSize {
  OperationSize size;
  double ns = 0;       // mean of the readings without the slowest 5 %, inputs not in the cache
  double warm_ns = 0;  // the same with inputs in the cache; 0: not measured
  double error = 0;    // standard error of the mean, relative
  double spread = 0;   // (p95 - p5) / mean
  double clock = 1;    // mean share of the normal clock
  std::int64_t readings = 0, discarded = 0;
  double least_ns = 0, median_ns = 0;                        // of the readings, like ns; 0: not kept (older files)
  std::optional<ProductAlgorithm> algorithm = std::nullopt;  // of the library that did it; nothing: own kernels
  bool operator==(const MeasuredSize&) const = default;
};

// Of the formula against sizes that it was not fitted on (five parts by width, five by rows).
struct FormulaErrors {
  double mean = 0, p95 = 0;  // of |predicted / measured - 1|
  double bias = 0;           // mean of predicted / measured - 1
  double common = 0, independent = 0;
  bool operator==(const FormulaErrors&) const = default;
};

struct MeasuredSeries {
  std::string operation;  // "linear", "layer_norm", "update adam", "copy to host"
  MeasuredPass pass = MeasuredPass::Forward;
  Precision precision = Precision::Fp32;
  int virtual_devices = 1, busy = 1, sms = 0;
  std::optional<TimeFormula> formula;  // none: too few sizes
  FormulaErrors errors;
  // Of the formula's coefficients in the order of TimeFormula (fixed_ns, then those of its terms), in their own units:
  // the upper triangle, row by row; 0 in rows of coefficients that are 0. Empty: not known.       calibrate/fit.hpp
  std::vector<double> covariance;
  // |difference| / |right| of its result at one size, against double precision; nothing: not compared.
  std::optional<double> result_error;
  std::vector<MeasuredSize> sizes;
  bool operator==(const MeasuredSeries&) const = default;
};

// An operation while another one is done on the same GPU at once, and how much longer it takes then than alone. On one
// of K groups: while all the others do it, or 1, 2, 4, ... of them; on the whole GPU: while a second stream does, one
// of the two being a copy that the driver makes. Both times are taken one after the other.
//
//     slowdown = time beside / time alone                      alone 200 us, beside a copy to the host 230 us: 1.15
//
// Nothing is priced by it yet.          tests/calibrate/device_loop_test.cpp "How much one operation slows another"
struct MeasuredPair {
  std::string operation, beside;  // "linear", "copy to host": forward passes
  Precision precision = Precision::Fp32, beside_precision = Precision::Fp32;
  int virtual_devices = 1, sms = 0;
  int others = 0;  // groups that did the other; 0: all of them, or a second stream
  OperationSize size, beside_size;
  double alone_ns = 0;  // mean of the readings without the slowest 5 %, inputs not in the cache
  double slowdown = 0;
  double error = 0;   // standard error of the slowdown, relative: that of both means together
  double spread = 0;  // (p95 - p5) / mean of the time beside
  double alone_spread = 0;
  double clock = 1;                          // mean share of the normal clock, beside
  std::int64_t readings = 0, discarded = 0;  // beside
  bool operator==(const MeasuredPair&) const = default;
};

// What several devices do together, by the bytes of it: groups of one GPU (virtual_devices > 1), or whole GPUs. Sizes
// have their bytes in `values`.
//
//     t = fixed + bytes ns_per_byte           of n members:        alpha = fixed / hops,  bandwidth = share /
//     ns_per_byte all-reduce    hops 2 (n - 1), share 2 (n - 1) / n;  bytes of one member's buffer [Thakur05]
//     all-gather    hops n - 1,     share (n - 1) / n;    bytes of what each member has afterwards
//     copies, messages    1, 1
//
// `bandwidth` is the bus bandwidth of nccl-tests: that of the links, whatever n. 4 members, 30 us + 0.01 ns / B:
// alpha 5 us, 150 GB/s.       tests/core/measured_device_test.cpp "Alpha and bus bandwidth"
//
// Readings are warm (below the L2, from it), and no clock is probed between GPUs. Nothing is priced by it.
struct MeasuredCollective {
  std::string operation;  // "ring all-reduce", "peer copy", "peer copy through the host", "nccl all-gather"
  int members = 2, virtual_devices = 1;
  int from = 0, to = 0;                // GPUs, of a copy
  std::optional<TimeFormula> formula;  // values: t0, d
  FormulaErrors errors;
  std::vector<double> covariance;  // as of a series
  std::vector<MeasuredSize> sizes;
  bool operator==(const MeasuredCollective&) const = default;
};
double hops_of(const MeasuredCollective& collective);
double bus_share(const MeasuredCollective& collective);
// 0 where there is no formula; ns, and bytes per ns (GB/s).
double alpha_ns(const MeasuredCollective& collective);
double bus_bandwidth(const MeasuredCollective& collective);

struct MeasuredDevice {
  std::string gpu, driver, toolkit, date, revision;
  int sms = 0;
  double clock_ghz = 0;     // of the SMs, the highest that the driver names: readings below 75 % were discarded
  double repeat_error = 0;  // relative deviation of one operation that was measured again and again meanwhile
  std::vector<std::string> left_out;  // what the time did not suffice for, or what this build cannot run
  std::vector<MeasuredSeries> series;
  std::vector<MeasuredPair> interference;
  std::vector<MeasuredCollective> collectives;

  // Times are so many standard errors longer (`moved`): of what all share (repeat_error), and of an operation's own.
  double sigmas = 0;
  std::map<std::string, double> sigmas_of;
  bool operator==(const MeasuredDevice&) const = default;
};

// Whose time is asked for.
struct MeasuredQuestion {
  std::string_view operation;
  MeasuredPass pass = MeasuredPass::Forward;
  Precision precision = Precision::Fp32;
  int virtual_devices = 1, busy = 1;
};

struct MeasuredPrice {
  double ns = 0;
  double common = 0, independent = 0;  // relative standard errors
  bool exact = false;                  // that very size was measured
  double beyond = 0;                   // distance from the measured sizes; 0: within
  double error() const;
};

// The series that answers: of that number of busy groups, else of the next larger one measured, else of the largest.
// What only moves values has no arithmetic that tf32 could change: it is looked up in fp32 there. Nullptr: nothing.
const MeasuredSeries* find_series(const MeasuredDevice& device, const MeasuredQuestion& question);

// Nothing where the operation was not measured on such a virtual device, or at other sizes only and too few of them.
std::optional<MeasuredPrice> measured_price(const MeasuredDevice& device, const MeasuredQuestion& question,
                                            const OperationSize& size);

// Numbers of busy groups that anything was measured with on one of `virtual_devices` groups; ascending.
std::vector<int> measured_loads(const MeasuredDevice& device, int virtual_devices);
// Numbers of groups that were measured; ascending.
std::vector<int> measured_splits(const MeasuredDevice& device);

// Sum over dimensions of |ln(size / nearest measured)|; 0 within the box that the series' sizes span.
double distance(const MeasuredSeries& series, const OperationSize& size);

// The same device with its times longer (shorter: negative) by so many standard errors: of `operation` by those of its
// own readings and formula, or with "" of all operations by `repeat_error`, which they share.
std::shared_ptr<const MeasuredDevice> moved(const MeasuredDevice& device, double sigmas,
                                            const std::string& operation = "");

}  // namespace pipewright::core
