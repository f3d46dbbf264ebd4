// One row of expect: a published figure, and what it is compared with.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "io/read/expect_text.hpp"
#include "io/text/quantity.hpp"
#include "io/yaml/changes.hpp"

namespace pipewright::io {
namespace {

constexpr Name<Figure> kFigures[] = {{"step_time_s", Figure::StepTime},
                                     {"samples_per_s", Figure::SamplesPerS},
                                     {"samples_per_s_per_device", Figure::SamplesPerSDevice},
                                     {"tokens_per_s", Figure::TokensPerS},
                                     {"tokens_per_s_per_device", Figure::TokensPerSDevice},
                                     {"mfu", Figure::Mfu},
                                     {"tflops_per_device", Figure::TflopsDevice},
                                     {"tflops_per_device_all_pairs", Figure::TflopsDeviceAllPairs},
                                     {"bubble_fraction", Figure::BubbleFraction},
                                     {"bubble_fraction_span", Figure::BubbleFractionSpan},
                                     {"bubble_fraction_kth_wrap", Figure::BubbleFractionKthWrap},
                                     {"forward_s", Figure::ForwardTime},
                                     {"backward_s", Figure::BackwardTime},
                                     {"parameters", Figure::Parameters},
                                     {"layers", Figure::Layers},
                                     {"fits", Figure::Fits}};

std::vector<std::string> memory_parts() {
  std::vector<std::string> parts(kMemoryCategories.begin(), kMemoryCategories.end());
  for (const auto& sum : kMemorySums)
    parts.emplace_back(sum);
  return parts;
}

bool of_a_stage(Figure figure) {
  return figure == Figure::Memory || figure == Figure::Parameters || figure == Figure::ForwardTime ||
         figure == Figure::BackwardTime;
}

constexpr std::string_view kBaselines =
    "none | bubble_bound | bubble_formula | {bubble_rate: 0.24} | {value: 2, source: text}";

void read_published(Reader& reader, const At& at, RowText& text) {
  const std::string* written = scalar(reader, at, "a figure, e.g. 3.48");
  if (!written) return;
  text.published_at = at.yaml.place;
  text.row.published_text = *written;
  if (*written == "true" || *written == "false") {
    text.row.published = *written == "true" ? 1 : 0;
    return;
  }
  const Parsed<double> number = parse_number(*written);
  if (!number.value) return reader.error(at, number.why.empty() ? "is not a number" : number.why);
  text.row.published = *number.value;
}

constexpr Field<RowText> kRow[] = {
    {"name", "text", "of the cell, unique in its table", read_row_text<&Expectation::name>, Need::Required},
    {"set", "map of keys and values, e.g. {plan.stages: 8}",
     "what makes its variant of the scenario, after the table's `set`", read_row_set},
    {"largest", "key of a whole number, e.g. training.micro_batch_size",
     "the variant takes the largest value of it that fits, as `capacity` finds it",
     [](Reader& reader, const At& at, RowText& text) {
       std::vector<std::string> keys;
       if (read_value(reader, at, text.row.largest)) read_keys(reader, at.yaml.place, path(at), text.row.largest, keys);
     }},
    {"quantity",
     "step_time_s | samples_per_s | samples_per_s_per_device | tokens_per_s | tokens_per_s_per_device | mfu | "
     "tflops_per_device | tflops_per_device_all_pairs | bubble_fraction | bubble_fraction_span | "
     "bubble_fraction_kth_wrap | forward_s | backward_s | parameters | layers | fits | memory.<part> | capacity(<key>)",
     "the figure; bubble_fraction_kth_wrap: as the authors of zero-bubble work out interleaved 1F1B, where only every "
     "K-th "
     "micro-batch waits for what goes between the last stage and the first; parts of memory: the categories of the "
     "report, or total, activations, training_state (weights, "
     "gradients and optimizer), held (that and what the framework keeps between steps), allocated (all but the "
     "reserve), reserved (with the allocator's rounding), in_use (that and the reserve, as nvidia-smi shows)",
     read_row_quantity},
    {"where", "fullest | all | last | number of a stage",
     "of which stage a figure of stages is; memory all: the sum over all devices; default: fullest (parameters: all)",
     read_row_where},
    {"ratio_to", "name of a row", "the figure is divided by that row's",
     [](Reader& reader, const At& at, RowText& text) {
       text.ratio_at = at.yaml.place;
       read_value(reader, at, text.row.ratio_to);
     }},
    {"published", "number, or true | false", "in `unit`; a row without it only serves the ratios of others",
     read_published},
    {"unit", "of the figure: GiB, ms, M, %, ...", "default: s, B, or none", read_row_unit},
    {"tolerance", "share (3 %) or amount in the unit (0.05)", "how near the prediction must come", read_tolerance},
    {"reason", "text", "why this tolerance, or this status; needed unless tolerance: 0",
     read_row_text<&Expectation::reason>},
    {"source", "text", "where the figure is printed, if not where the table is", read_row_text<&Expectation::source>},
    {"status", "compared | fitted | known_miss | above_bound | analytic | inputs_assumed | not_simulated",
     "all but compared leave the averages and do not decide the exit status; default: compared",
     read_row_text<&Expectation::status>},
    {"baseline", kBaselines, "the trivial prediction to beat; default: none", read_baseline},
    {"search", "map of keys and values",
     "what makes, after `set`, the scenario in which the planner looks for stages and replicas of its own, next to the "
     "published plan of a ratio of samples_per_s; ratio_to must be data parallelism",
     [](Reader& reader, const At& at, RowText& text) { read_changes(reader, at, text.search.emplace()); }},
    {"time_to_accuracy", "number",
     "published next to a speed-up: the ratio of the times to an accuracy; its quotient by `published`, the epochs, is "
     "an input",
     read_row_text<&Expectation::time_to_accuracy>},
};

}  // namespace

bool read_quantity(Reader& reader, const At& at, FigureSought& quantity) {
  const std::string* text = scalar(reader, at, "a quantity, e.g. step_time_s");
  if (!text) return false;
  quantity.text = *text;
  if (text->starts_with("memory.")) {
    quantity.figure = Figure::Memory;
    quantity.of = text->substr(std::string_view("memory.").size());
    const auto known = memory_parts();
    if (std::ranges::find(known, quantity.of) != known.end()) return true;
    reader.errors.add(at.yaml.place, path(at), fmt::format("{}", unknown_name(quantity.of, known)));
    return false;
  }
  if (text->starts_with("capacity(") && text->ends_with(")")) {
    quantity.figure = Figure::Capacity;
    quantity.of = text->substr(9, text->size() - 10);
    std::vector<std::string> keys;
    return read_keys(reader, at.yaml.place, path(at), quantity.of, keys);
  }
  std::vector<std::string_view> known;
  for (const auto& [name, figure] : kFigures) {
    if (name == *text) return quantity.figure = figure, true;
    known.push_back(name);
  }
  known.insert(known.end(), {"memory.<part>", "capacity(<key>)"});
  reader.errors.add(at.yaml.place, path(at), unknown_name(std::string_view(*text).substr(0, 64), known));
  return false;
}

std::optional<double> unit_size(Dimension dimension, const std::string& unit) {
  switch (dimension) {
    case Dimension::Count:
      if (unit == "k") return 1e3;
      if (unit == "M") return 1e6;
      if (unit == "G") return 1e9;
      return std::nullopt;
    case Dimension::Share: return unit == "%" ? std::optional(0.01) : std::nullopt;
    case Dimension::Duration:
      if (const auto size = parse_time("1 " + unit).value) return seconds(*size);
      return std::nullopt;
    case Dimension::Size:
      if (const auto size = parse_bytes("1 " + unit).value) return static_cast<double>(size->value);
      return std::nullopt;
    case Dimension::Rate:
    case Dimension::Truth: return std::nullopt;
  }
  return std::nullopt;
}

const char* units_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::Count: return "k, M, G, or leave it out";
    case Dimension::Share: return "%, or leave it out";
    case Dimension::Duration: return "ns, us, ms, s, min, h";
    case Dimension::Size: return "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB";
    case Dimension::Rate:
    case Dimension::Truth: return "none: leave it out";
  }
  return "";
}

void read_tolerance(Reader& reader, const At& at, RowText& text) {
  const std::string* written = scalar(reader, at, "a tolerance, e.g. 3 % or 0.05");
  if (!written) return;
  Tolerance tolerance;
  std::string_view figure = *written;
  if (figure.ends_with('%')) {
    tolerance.relative = true;
    figure.remove_suffix(1);
    while (figure.ends_with(' '))
      figure.remove_suffix(1);
  }
  const Parsed<double> number = parse_number(figure);
  if (!number.value)
    return reader.error(at, "is not a tolerance; write a share (3 %) or an amount in the cell's unit (0.05)");
  tolerance.value = tolerance.relative ? *number.value / 100 : *number.value;
  text.row.tolerance = tolerance;
}

void read_where(Reader& reader, const At& at, std::optional<std::pair<Where, std::int64_t>>& where) {
  const std::string* written = scalar(reader, at, "fullest, all, last or the number of a stage");
  if (!written) return;
  const Parsed<std::int64_t> stage = parse_count(*written);
  if (*written == "fullest")
    where = {Where::Fullest, 0};
  else if (*written == "all")
    where = {Where::All, 0};
  else if (*written == "last")
    where = {Where::Last, 0};
  else if (stage.value)
    where = {Where::Stage, *stage.value};
  else
    reader.error(at, "is not a place; write fullest, all, last or the number of a stage");
}

struct IdleShare {
  const char* operator()(double share) const {
    return share >= 0 && share < 1 ? "" : "is not a share of idle time; write 0 or more, less than 1";
  }
};

void read_baseline(Reader& reader, const At& at, RowText& text) {
  Baseline& baseline = text.row.baseline;
  baseline = {};
  if (at.yaml.is(Yaml::Type::Scalar)) {
    const std::string& name = at.yaml.scalar;
    if (name == "none") return;
    if (name == "bubble_bound") return void(baseline.kind = Baseline::Kind::BubbleBound);
    if (name == "bubble_formula") return void(baseline.kind = Baseline::Kind::BubbleFormula);
  }
  if (!at.yaml.is(Yaml::Type::Map)) return reader.error(at, fmt::format("is not a baseline; write {}", kBaselines));
  for (const auto& [key, value] : at.yaml.map) {
    const At here = at.child(key.text, value);
    if (key.text == "bubble_rate") {
      baseline.kind = Baseline::Kind::BubbleRate;
      read_lawful<IdleShare>(reader, here, baseline.value);
    } else if (key.text == "value") {
      baseline.kind = Baseline::Kind::Stated;
      read_value(reader, here, baseline.value);
    } else if (key.text == "source") {
      read_value(reader, here, baseline.source);
    } else {
      unknown_key(reader, at, key, {"bubble_rate", "value", "source"});
    }
  }
  if (at.yaml.map.empty()) return reader.error(at, fmt::format("is empty; write {}", kBaselines));
  if (at.yaml.find("value") && at.yaml.find("bubble_rate"))
    reader.errors.add(at.yaml.place, path(at), "value and bubble_rate exclude each other; keep one of them");
  if (at.yaml.find("value") && !at.yaml.find("source")) missing_key(reader, at, "source", "whose figure it is");
}

void place_quantity(Reader& reader, const At& at, FigureSought& quantity,
                    const std::optional<std::pair<Where, std::int64_t>>& where) {
  if (quantity.figure == Figure::Parameters) quantity.where = Where::All;
  if (where && of_a_stage(quantity.figure))
    std::tie(quantity.where, quantity.stage) = *where;
  else if (const Yaml* written = at.yaml.find("where"))
    reader.errors.add(written->place, path(at) + ".where",
                      fmt::format("{} is of the whole run, not of a stage; leave `where` out", quantity.text));
}

void read_row_where(Reader& reader, const At& at, RowText& text) {
  read_where(reader, at, text.where);
}

void read_row_quantity(Reader& reader, const At& at, RowText& text) {
  FigureSought quantity;
  if (read_quantity(reader, at, quantity)) text.row.quantity = quantity;
}

void read_row_unit(Reader& reader, const At& at, RowText& text) {
  text.unit_at = at.yaml.place;
  read_value(reader, at, text.row.unit);
}

void read_row_set(Reader& reader, const At& at, RowText& text) {
  read_changes(reader, at, text.changes);
}

std::span<const Field<RowText>> expect_row_fields() {
  return kRow;
}

void check_row(Reader& reader, const At& at, RowText& text) {
  Expectation& row = text.row;
  const auto refuse = [&](const Place& place, const std::string& message) {
    reader.errors.add(place, path(at) + message);
  };
  const bool predicted = row.status != CellStatus::NotSimulated;
  if (!row.quantity) {
    if (predicted) missing_key(reader, at, "quantity", "e.g. step_time_s, here or for the whole table");
    return;
  }
  const Dimension dimension = core::dimension(row.quantity->figure);
  place_quantity(reader, at, *row.quantity, text.where);
  if (!row.ratio_to.empty() && !at.yaml.find("unit")) row.unit.clear();
  if (!row.unit.empty()) {
    const auto size = row.ratio_to.empty() ? unit_size(dimension, row.unit) : std::nullopt;
    if (size)
      row.unit_size = *size;
    else
      refuse(text.unit_at, row.ratio_to.empty()
                               ? fmt::format(".unit: {} is not a unit of {}; write {}", in_quotes(row.unit),
                                             row.quantity->text, units_of(dimension))
                               : fmt::format(".unit: {} with ratio_to; a ratio has no unit", in_quotes(row.unit)));
  }
  if (text.search && (row.ratio_to.empty() || row.quantity->figure != Figure::SamplesPerS))
    refuse(row.place, ".search compares speeds; it needs samples_per_s and ratio_to");
  if (row.time_to_accuracy && (row.ratio_to.empty() || !row.published || !(*row.published > 0)))
    refuse(row.place, ".time_to_accuracy stands next to a speed-up; it needs ratio_to and published");
  if (!row.published) return;
  const bool truth = row.published_text == "true" || row.published_text == "false";
  if (truth != (dimension == Dimension::Truth))
    refuse(text.published_at, truth ? fmt::format(".published: {} where a number is needed", row.published_text)
                                    : fmt::format(".published: {} where true or false is needed", row.published_text));
  if (dimension == Dimension::Truth) row.tolerance = Tolerance{};
  if (!row.tolerance && predicted)
    refuse(row.place,
           ".tolerance is missing; write a share (3 %) or an amount in the cell's unit (0.05), here or for the whole "
           "table");
  const bool exact = row.tolerance && row.tolerance->value == 0;
  if (row.reason.empty() && (!exact || row.status != CellStatus::Compared))
    refuse(row.place, ".reason is missing; say why this tolerance, or this status");
  if (row.tolerance && row.tolerance->relative && *row.published == 0)
    refuse(row.place, ".tolerance: a share of the published 0 is always 0; write an amount in the cell's unit");
  const Figure figure = row.quantity->figure;
  const bool bubble = figure == Figure::BubbleFraction || figure == Figure::BubbleFractionSpan ||
                      figure == Figure::BubbleFractionKthWrap;
  const bool pace = row.quantity->figure == Figure::StepTime || row.quantity->figure == Figure::SamplesPerS ||
                    row.quantity->figure == Figure::SamplesPerSDevice;
  if (row.baseline.kind == Baseline::Kind::BubbleBound && (row.ratio_to.empty() || !pace))
    refuse(row.place, ".baseline: bubble_bound is a ratio of throughputs; it needs ratio_to, and samples_per_s");
  if (row.baseline.kind == Baseline::Kind::BubbleFormula && !bubble)
    refuse(row.place,
           ".baseline: bubble_formula gives a bubble; the quantity must be bubble_fraction, bubble_fraction_span or "
           "bubble_fraction_kth_wrap");
  if (row.baseline.kind == Baseline::Kind::BubbleRate && (!pace || !row.ratio_to.empty()))
    refuse(row.place,
           ".baseline: bubble_rate gives a time or a throughput; the quantity must be step_time_s, samples_per_s or "
           "samples_per_s_per_device");
}

}  // namespace pipewright::io
