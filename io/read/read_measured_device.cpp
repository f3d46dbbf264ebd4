// device.measured: what `calibrate --backend cuda` measured of a GPU.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/cluster/measured_device.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/quote.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

// What is computed with times in whole ns takes it.
struct Moderate {
  const char* operator()(double value) const { return value < 1e18 ? "" : "is 1e18 or more; write a smaller number"; }
};

// ---- formula, errors ------------------------------------------------------------------------------------------------

constexpr Field<TimeFormula> kFormula[] = {
    {"terms", "waves | work | values", "which formula: core/cluster/measured_device.hpp", member<&TimeFormula::terms>,
     Need::Required},
    {"fixed_ns", "number >= 0", "t0, ns", member<&TimeFormula::fixed_ns, Moderate>, Need::Required},
    {"per_wave_ns", "number >= 0", "waves: a, ns", member<&TimeFormula::per_wave_ns, Moderate>},
    {"per_wave_depth_ns", "number >= 0", "waves: b, ns", member<&TimeFormula::per_wave_depth_ns, Moderate>},
    {"tile_rows", "whole number >= 1", "waves: rows of a tile", member<&TimeFormula::tile_rows, AtLeast1>},
    {"tile_columns", "whole number >= 1", "waves: columns of a tile", member<&TimeFormula::tile_columns, AtLeast1>},
    {"floor_ns_per_value", "number >= 0", "waves: no faster than that",
     member<&TimeFormula::floor_ns_per_value, Moderate>},
    {"per_flop_ns", "number >= 0", "work: c, ns", member<&TimeFormula::per_flop_ns, Moderate>},
    {"per_value_ns", "number >= 0", "work, values: d, ns", member<&TimeFormula::per_value_ns, Moderate>},
};

// Other numbers of a file are none below 0.
double signed_number(Reader& reader, const At& at, double most) {
  double number = 0;
  const std::string* const text = scalar(reader, at, "a number");
  if (text == nullptr) return 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc{} || end != text->data() + text->size() || !(std::abs(number) < most))
    reader.error(at, "is not a number; write e.g. -0.01");
  return number;
}
void read_bias(Reader& reader, const At& at, FormulaErrors& errors) {
  errors.bias = signed_number(reader, at, 1e9);
}

constexpr Field<FormulaErrors> kErrors[] = {
    {"mean", "number >= 0", "mean |predicted / measured - 1| of sizes that the formula was not fitted on",
     member<&FormulaErrors::mean, Moderate>, Need::Required},
    {"p95", "number >= 0", "95 % of them are below", member<&FormulaErrors::p95, Moderate>, Need::Required},
    {"bias", "number", "mean of predicted / measured - 1", read_bias, write_as<&FormulaErrors::bias>, Need::Required},
    {"common", "number >= 0", "relative standard error that sizes of one width share",
     member<&FormulaErrors::common, Moderate>, Need::Required},
    {"independent", "number >= 0", "relative standard error of each size's own",
     member<&FormulaErrors::independent, Moderate>, Need::Required},
};

// ---- series ---------------------------------------------------------------------------------------------------------

// Of a series, or a collective.
template <class T>
void read_covariance(Reader& reader, const At& at, T& of) {
  if (!is_list(reader, at, "a list of numbers")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
    of.covariance.push_back(signed_number(reader, at.entry(i), 1e300));
  const std::size_t n = of.formula ? coefficients_of(of.formula->terms) : 0;
  if (of.covariance.size() != n * (n + 1) / 2)
    reader.error(
        at, fmt::format("needs {} numbers after `formula`: the upper triangle of the covariance of its {} coefficients",
                        n * (n + 1) / 2, n));
}
template <class T>
void write_formula(YamlText& out, std::string_view key, const T& of) {
  if (of.formula) out.line(key, flow(kFormula, *of.formula));
}
template <class T>
void write_errors(YamlText& out, std::string_view key, const T& of) {
  if (of.formula) out.line(key, flow(kErrors, of.errors));
}

constexpr Field<MeasuredSeries> kSeries[] = {
    {"operation", "text", "of a model's programs: linear, layer_norm; update adam, copy to host",
     member<&MeasuredSeries::operation>, Need::Required},
    {"pass", "forward | input_gradient | weight_gradient", "of it", member<&MeasuredSeries::pass>, Need::Required},
    {"precision", "fp32 | tf32 | fp16 | bf16", "of its arithmetic", member<&MeasuredSeries::precision>, Need::Required},
    {"virtual_devices", "whole number >= 1", "equal groups that the SMs were cut into",
     member<&MeasuredSeries::virtual_devices, AtLeast1>, Need::Required},
    {"busy", "whole number >= 1", "groups that did the same at once, this one among them",
     member<&MeasuredSeries::busy, AtLeast1>, Need::Required},
    {"sms", "whole number >= 1", "of a group", member<&MeasuredSeries::sms, AtLeast1>, Need::Required},
    {"formula", "map", "for sizes that were not measured; absent: too few were",
     read_section<&MeasuredSeries::formula, kFormula>, write_formula<MeasuredSeries>},
    {"errors", "map", "of the formula", read_section<&MeasuredSeries::errors, kErrors>, write_errors<MeasuredSeries>},
    {"result_error", "number >= 0",
     "|difference| / |right| of a result at its smallest size against double precision, before it was timed; absent: "
     "not compared",
     member<&MeasuredSeries::result_error, Moderate>},
    {"covariance", "list of numbers",
     "of the formula's coefficients, in their order and units: the upper triangle by rows, 0 for a coefficient that is "
     "0; prices do not use it",
     read_covariance<MeasuredSeries>, write_changed<&MeasuredSeries::covariance>},
};

void read_series(Reader& reader, const At& at, MeasuredDevice& device) {
  if (!is_list(reader, at, "a list of maps")) return;
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i) {
    const At here = at.entry(i);
    MeasuredSeries& series = device.series.emplace_back();
    read_fields<MeasuredSeries>(reader, here, kSeries, series);
    if (series.busy > series.virtual_devices)
      reader.error(here.child("busy", *at.yaml.list[i].find("busy")), "is more than virtual_devices");
  }
}

// Numbers of one size, that of its series among them: without and with the least and the median reading.
constexpr std::size_t kNumbers = 13, kAllNumbers = 15;

// Rows of numbers of 0 or more; `take` says whether it could use one.
template <class Take>
void read_rows(Reader& reader, const At& at, const std::string& needs, const Take& take) {
  if (!is_list(reader, at, "a list of lists")) return;
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i) {
    const At here = at.entry(i);
    std::vector<double> n;
    if (!read_value(reader, here, n)) continue;
    if (!std::ranges::all_of(n, [](double x) { return x >= 0 && x < 9e15; }) || !take(n))
      reader.errors.add(here.yaml.place, path(here), fmt::format("needs {}", needs));
  }
}

// `n` from number `at` on: count, rows, columns, depth, values.
OperationSize size_in(const std::vector<double>& n, std::size_t at) {
  const auto whole = [&](std::size_t number) { return static_cast<std::int64_t>(n[at + number]); };
  return {whole(0), whole(1), whole(2), whole(3), n[at + 4]};
}

void read_sizes(Reader& reader, const At& at, MeasuredDevice& device) {
  const std::string needs = fmt::format(
      "{} or {} numbers of 0 or more: the series (of {}, counted from 0), count, rows, columns, depth, values, ns "
      "(more than 0), warm ns, error, spread, clock, readings, discarded; then the least ns and the median ns",
      kNumbers, kAllNumbers, device.series.size());
  read_rows(reader, at, needs, [&](std::vector<double>& n) {
    if ((n.size() != kNumbers && n.size() != kAllNumbers) || n[6] <= 0 ||
        n[0] >= static_cast<double>(device.series.size()))
      return false;
    n.resize(kAllNumbers);
    MeasuredSize size;
    size.size = size_in(n, 1), size.ns = n[6], size.warm_ns = n[7], size.error = n[8], size.spread = n[9];
    size.clock = n[10], size.readings = std::llround(n[11]), size.discarded = std::llround(n[12]);
    size.least_ns = n[13], size.median_ns = n[14];
    device.series[static_cast<std::size_t>(n[0])].sizes.push_back(size);
    return true;
  });
}

void write_sizes(YamlText& out, std::string_view key, const MeasuredDevice& device) {
  out.open(key);
  for (std::size_t i = 0; i < device.series.size(); ++i)
    for (const MeasuredSize& m : device.series[i].sizes)
      out.item(fmt::format("[{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}{}]", i, m.size.count, m.size.rows,
                           m.size.columns, m.size.depth, m.size.values, m.ns, m.warm_ns, m.error, m.spread, m.clock,
                           m.readings, m.discarded,
                           m.median_ns > 0 ? fmt::format(", {}, {}", m.least_ns, m.median_ns) : std::string()),
               {});
  out.close();
}

// ---- algorithms -----------------------------------------------------------------------------------------------------

void read_algorithms(Reader& reader, const At& at, MeasuredDevice& device) {
  const char* const needs =
      "10 numbers of 0 or more, the first six of a size in `sizes`: the series, count, rows, columns, depth, values, "
      "waves, tile rows, tile columns, parts of the depth";
  read_rows(reader, at, needs, [&](const std::vector<double>& n) {
    if (n.size() != 10 || n[0] >= static_cast<double>(device.series.size())) return false;
    auto& sizes = device.series[static_cast<std::size_t>(n[0])].sizes;
    const auto found = std::ranges::find_if(sizes, [&](const MeasuredSize& m) { return m.size == size_in(n, 1); });
    if (found == sizes.end()) return false;
    found->algorithm = {n[6], std::llround(n[7]), std::llround(n[8]), std::llround(n[9])};
    return true;
  });
}

void write_algorithms(YamlText& out, std::string_view key, const MeasuredDevice& device) {
  bool open = false;
  for (std::size_t i = 0; i < device.series.size(); ++i)
    for (const MeasuredSize& m : device.series[i].sizes) {
      if (!m.algorithm) continue;
      if (!std::exchange(open, true)) out.open(key);
      out.item(fmt::format("[{}, {}, {}, {}, {}, {}, {}, {}, {}, {}]", i, m.size.count, m.size.rows, m.size.columns,
                           m.size.depth, m.size.values, m.algorithm->waves, m.algorithm->tile_rows,
                           m.algorithm->tile_columns, m.algorithm->split_k),
               {});
    }
  if (open) out.close();
}

// ---- collectives ----------------------------------------------------------------------------------------------------

constexpr Field<MeasuredCollective> kMeasuredCollectives[] = {
    {"operation", "text", "ring all-reduce, peer copy, peer copy through the host; nccl all-reduce, all-gather, send",
     member<&MeasuredCollective::operation>, Need::Required},
    {"members", "whole number >= 2", "groups of one GPU, or GPUs", member<&MeasuredCollective::members, AtLeast2>,
     Need::Required},
    {"virtual_devices", "whole number >= 1", "equal groups that the SMs of one GPU were cut into; 1: members are GPUs",
     member<&MeasuredCollective::virtual_devices, AtLeast1>, Need::Required},
    {"from", "whole number >= 0", "number of the GPU that sends, of a copy", member<&MeasuredCollective::from>,
     Need::Required},
    {"to", "whole number >= 0", "likewise, that receives", member<&MeasuredCollective::to>, Need::Required},
    {"formula", "map", "terms: values, of bytes: t0 + d bytes; absent: too few sizes",
     read_section<&MeasuredCollective::formula, kFormula>, write_formula<MeasuredCollective>},
    {"errors", "map", "of the formula", read_section<&MeasuredCollective::errors, kErrors>,
     write_errors<MeasuredCollective>},
    {"covariance", "list of numbers", "as of a series", read_covariance<MeasuredCollective>,
     write_changed<&MeasuredCollective::covariance>},
};

void read_collective_sizes(Reader& reader, const At& at, MeasuredDevice& device) {
  const std::string needs = fmt::format(
      "10 numbers of 0 or more: the collective (of {}, counted from 0), bytes, ns (more than 0), error, spread, clock, "
      "readings, discarded, least ns, median ns",
      device.collectives.size());
  read_rows(reader, at, needs, [&](const std::vector<double>& n) {
    if (n.size() != 10 || n[2] <= 0 || n[0] >= static_cast<double>(device.collectives.size())) return false;
    MeasuredSize size;
    size.size = {1, std::llround(n[1]), 1, 0, n[1]};
    size.ns = n[2], size.error = n[3], size.spread = n[4], size.clock = n[5];
    size.readings = std::llround(n[6]), size.discarded = std::llround(n[7]);
    size.least_ns = n[8], size.median_ns = n[9];
    device.collectives[static_cast<std::size_t>(n[0])].sizes.push_back(size);
    return true;
  });
}
void write_collective_sizes(YamlText& out, std::string_view key, const MeasuredDevice& device) {
  if (device.collectives.empty()) return;
  out.open(key);
  for (std::size_t i = 0; i < device.collectives.size(); ++i)
    for (const MeasuredSize& m : device.collectives[i].sizes)
      out.item(fmt::format("[{}, {}, {}, {}, {}, {}, {}, {}, {}, {}]", i, m.size.values, m.ns, m.error, m.spread,
                           m.clock, m.readings, m.discarded, m.least_ns, m.median_ns),
               {});
  out.close();
}

// ---- pairs ----------------------------------------------------------------------------------------------------------

template <OperationSize MeasuredPair::*Size>
void read_size(Reader& reader, const At& at, MeasuredPair& pair) {
  std::vector<double> n;
  if (!read_value(reader, at, n)) return;
  if (n.size() != 5 || !std::ranges::all_of(n, [](double x) { return x >= 0 && x < 9e15; }))
    return reader.error(at, "needs five numbers of 0 or more: count, rows, columns, depth, values");
  pair.*Size = size_in(n, 0);
}
template <OperationSize MeasuredPair::*Size>
void write_size(YamlText& out, std::string_view key, const MeasuredPair& pair) {
  const OperationSize& size = pair.*Size;
  out.line(key, fmt::format("[{}, {}, {}, {}, {}]", size.count, size.rows, size.columns, size.depth, size.values));
}

constexpr Field<MeasuredPair> kPairs[] = {
    {"operation", "text", "that was timed, its forward pass", member<&MeasuredPair::operation>, Need::Required},
    {"beside", "text", "what other groups, or a second stream of the whole GPU, did meanwhile",
     member<&MeasuredPair::beside>, Need::Required},
    {"precision", "fp32 | tf32 | fp16 | bf16", "of what was timed", member<&MeasuredPair::precision>, Need::Required},
    {"beside_precision", "fp32 | tf32 | fp16 | bf16", "of the other", member<&MeasuredPair::beside_precision>,
     Need::Required},
    {"virtual_devices", "whole number >= 1", "equal groups that the SMs were cut into; 1: two streams of the whole GPU",
     member<&MeasuredPair::virtual_devices, AtLeast1>, Need::Required},
    {"sms", "whole number >= 1", "of a group", member<&MeasuredPair::sms, AtLeast1>, Need::Required},
    {"others", "whole number >= 0", "groups that did the other; default: all other groups, or a second stream",
     changed<&MeasuredPair::others>},
    {"size", "list of [count, rows, columns, depth, values]", "of what was timed", read_size<&MeasuredPair::size>,
     write_size<&MeasuredPair::size>, Need::Required},
    {"beside_size", "list of [count, rows, columns, depth, values]", "of the other",
     read_size<&MeasuredPair::beside_size>, write_size<&MeasuredPair::beside_size>, Need::Required},
    {"alone_ns", "number > 0", "what it takes alone, inputs outside the cache",
     member<&MeasuredPair::alone_ns, Positive>, Need::Required},
    {"slowdown", "number > 0", "its time while the other runs, as a multiple of that",
     member<&MeasuredPair::slowdown, Positive>, Need::Required},
    {"error", "number >= 0", "standard error of the slowdown, relative", member<&MeasuredPair::error, Moderate>,
     Need::Required},
    {"spread", "number >= 0", "(p95 - p5) / mean of the time while the other runs",
     member<&MeasuredPair::spread, Moderate>, Need::Required},
    {"alone_spread", "number >= 0", "likewise, alone", member<&MeasuredPair::alone_spread, Moderate>, Need::Required},
    {"clock", "number >= 0", "mean share of the normal clock while the other runs",
     member<&MeasuredPair::clock, Moderate>, Need::Required},
    {"readings", "whole number >= 0", "that were kept, taken while the other runs", member<&MeasuredPair::readings>,
     Need::Required},
    {"discarded", "whole number >= 0", "likewise, that were not", member<&MeasuredPair::discarded>, Need::Required},
};

constexpr Field<MeasuredDevice> kMeasuredDevice[] = {
    {"gpu", "text", "as the driver names it", member<&MeasuredDevice::gpu>, Need::Required},
    {"sms", "whole number >= 1", "of the whole GPU", member<&MeasuredDevice::sms, AtLeast1>, Need::Required},
    {"clock_ghz", "number >= 0", "of its SMs, the highest that the driver names",
     member<&MeasuredDevice::clock_ghz, Moderate>, Need::Required},
    {"driver", "text", "newest CUDA version that it knows", member<&MeasuredDevice::driver>, Need::Required},
    {"toolkit", "text", "CUDA version of the kernels' compiler", member<&MeasuredDevice::toolkit>, Need::Required},
    {"date", "text", "of the measurement", member<&MeasuredDevice::date>, Need::Required},
    {"revision", "text", "of pipewright", changed<&MeasuredDevice::revision>},
    {"repeat_error", "number >= 0", "relative deviation of one operation that was measured again and again meanwhile",
     member<&MeasuredDevice::repeat_error, Moderate>, Need::Required},
    {"left_out", "list of text", "what was not measured, and why; default: nothing", read_as<&MeasuredDevice::left_out>,
     [](YamlText& out, std::string_view key, const MeasuredDevice& device) {
       if (!device.left_out.empty()) out.items(key, device.left_out, yaml_string);
     }},
    {"series", "list of maps", "one pass of one operation at one precision on one virtual device", read_series,
     write_maps<&MeasuredDevice::series, kSeries>, Need::Required},
    {"sizes",
     "list of [series, count, rows, columns, depth, values, ns, warm_ns, error, spread, clock, readings, discarded, "
     "least_ns, median_ns]",
     "what was measured: number of its series, size, ns with inputs outside and inside the cache (0: not measured), "
     "relative standard error and spread, share of the normal clock, readings kept and discarded, the least and the "
     "median of them (older files: without these two); after `series`",
     read_sizes, write_sizes, Need::Required},
    {"algorithms", "list of [series, count, rows, columns, depth, values, waves, tile_rows, tile_columns, split_k]",
     "how cuBLASLt did a size, as it tells itself (0: it does not): how often its grid fills the SMs, tile, parts of "
     "the depth; after `sizes`",
     read_algorithms, write_algorithms},
    {"interference", "list of maps", "how much longer an operation takes while another one runs; prices nothing yet",
     maps<&MeasuredDevice::interference, kPairs>},
    {"collectives", "list of maps", "what groups of the GPU, or several GPUs, do together; prices nothing",
     maps<&MeasuredDevice::collectives, kMeasuredCollectives>},
    {"collective_sizes",
     "list of [collective, bytes, ns, error, spread, clock, readings, discarded, least_ns, median_ns]",
     "of `collectives`, after it", read_collective_sizes, write_collective_sizes},
};

}  // namespace

void read_measured_device(Reader& reader, const At& at, Device& device) {
  auto measured = std::make_shared<MeasuredDevice>();
  const bool sourced = std::exchange(reader.sourced, false);
  read_fields<MeasuredDevice>(reader, at, kMeasuredDevice, *measured);
  reader.sourced = sourced;
  device.measured = std::move(measured);
}

void write_measured_device(YamlText& out, std::string_view key, const Device& device) {
  write_section<&Device::measured, kMeasuredDevice>(out, key, device);
}

std::vector<SectionDoc> measured_device_docs() {
  return {document<MeasuredDevice>("device.measured", kMeasuredDevice),
          document<MeasuredSeries>("device.measured.series[]", kSeries),
          document<TimeFormula>("device.measured.series[].formula", kFormula),
          document<FormulaErrors>("device.measured.series[].errors", kErrors),
          document<MeasuredPair>("device.measured.interference[]", kPairs),
          document<MeasuredCollective>("device.measured.collectives[]", kMeasuredCollectives)};
}

std::string device_yaml(const Device& device) {
  std::map<std::string, std::string> sources;
  for (const auto& [key, source] : device.sources)
    sources.emplace("device." + key, source);
  std::map<std::string, Provenance> provenances;
  for (const auto& [key, how] : device.provenances)
    provenances.emplace("device." + key, how);
  YamlText out(nullptr, std::move(sources), std::move(provenances));
  out.open("device");
  write_device_section(out, device);
  out.close();
  return out.text();
}

}  // namespace pipewright::io
