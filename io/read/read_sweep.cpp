#include "io/read/read_sweep.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/read/read_condition.hpp"
#include "io/yaml/changes.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

// Each is read alone before the sweep begins.
constexpr std::size_t kMostValuesOfKey = 10'000;

// A sweep as written.
struct SweepText {
  SweepQuestion question;
  Placed<std::string> base;
  std::vector<std::vector<Assignment>> variants, axes;
  Placed<std::string> baseline;
  std::vector<Placed<std::string>> where;
  YamlPlace grid_at;
};

// `keys` of a point: what a scenario has and a sweep may change.
bool read_swept_key(Reader& reader, const At& at, const YamlKey& key, std::vector<std::string>& keys) {
  if (!read_keys(reader, key.place, path(at), key.text, keys)) return false;
  if (std::ranges::find(kSweptSections, keys.front()) != kSweptSections.end()) return true;
  const std::string meant = meant_by(keys.front());
  reader.errors.add(key.place, path(at),
                    fmt::format("{}", meant.empty() ? unknown_name(keys.front().substr(0, 64), kSweptSections)
                                                    : fmt::format("unknown {}; {}", in_quotes(keys.front()), meant)));
  return false;
}

void read_variants(Reader& reader, const At& at, SweepText& text) {
  if (!is_map(reader, at, "a map of names, e.g. {fast: {cluster.network.bandwidth: 400 Gb/s}}")) return;
  for (const auto& [name, changes] : at.yaml.map) {
    const At here = at.child(name.text, changes);
    const Yaml named = as_value(name);
    std::string shown;
    if (!read_value(reader, at.child(name.text, named), shown)) continue;
    if (!is_map(reader, here, "a map of keys and values, e.g. {plan.stages: 8}, or {} for the base itself")) continue;
    std::vector<Assignment> assignments;
    for (const auto& [key, value] : changes.map) {
      Assignment assignment;
      if (!read_swept_key(reader, here, key, assignment.keys)) continue;
      assignment.value = value;
      assignments.push_back(std::move(assignment));
    }
    text.question.variants.push_back(name.text);
    text.variants.push_back(std::move(assignments));
  }
  if (at.yaml.map.empty()) reader.error(at, "names no variant; write at least one, or remove the key");
}

void read_grid(Reader& reader, const At& at, SweepText& text) {
  text.grid_at = at.yaml.place;
  if (!is_map(reader, at, "a map of keys and lists, e.g. {plan.stages: [2, 4, 8]}")) return;
  if (at.yaml.map.empty()) return reader.error(at, "is empty; write e.g. {plan.stages: [2, 4, 8]}, or remove the key");
  for (const auto& [key, values] : at.yaml.map) {
    const At here = at.child(key.text, values);
    std::vector<std::string> keys;
    if (!read_swept_key(reader, at, key, keys)) continue;
    if (!is_list(reader, here, "a list of values, e.g. [1, 8, 32],")) continue;
    if (values.list.empty()) {
      reader.error(here, "is empty; write at least one value");
      continue;
    }
    if (values.list.size() > kMostValuesOfKey) {
      reader.errors.add(values.place, path(here),
                        fmt::format("{} values are more than {}; ask for fewer", values.list.size(), kMostValuesOfKey));
      continue;
    }
    SweepAxis axis{key.text, {}, {}};
    std::set<std::string> written_before;
    std::vector<Assignment> assignments;
    for (const Yaml& value : values.list) {
      const std::string written = flow_text(value);
      if (!written_before.insert(written).second)
        reader.errors.add(value.place, path(here),
                          fmt::format("{} is in the list twice; write it once", in_quotes(written)));
      axis.texts.push_back(written);
      axis.amounts.push_back(value.is(Yaml::Type::Scalar) && !value.quoted ? parse_magnitude(value.scalar)
                                                                           : std::nullopt);
      assignments.push_back({keys, value});
    }
    text.question.axes.push_back(std::move(axis));
    text.axes.push_back(std::move(assignments));
  }
}

void read_where(Reader& reader, const At& at, SweepText& text) {
  if (at.yaml.is(Yaml::Type::List)) {
    for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
      read_value(reader, at.entry(i), text.where.emplace_back());
  } else {
    read_value(reader, at, text.where.emplace_back());
  }
}

void read_metrics(Reader& reader, const At& at, SweepText& text) {
  if (!is_list(reader, at, "a list of figures, e.g. [step_time, mfu],")) return;
  if (at.yaml.list.empty()) return reader.error(at, "is empty; write at least one figure, or remove the key");
  auto known = mapped<std::string_view>(kSweepFigures, &SweepFigureName::name);
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    const std::string* name = scalar(reader, here, "a figure, e.g. step_time");
    if (!name) continue;
    if (const SweepFigureName* found = find_sweep_figure(*name))
      text.question.metrics.push_back(found->figure);
    else
      reader.errors.add(here.yaml.place, path(here), unknown_name(std::string_view(*name).substr(0, 64), known));
  }
}

constexpr Field<SweepText> kSweep[] = {
    {"base", "path", "the scenario that the sweep varies; relative to the sweep file", read_as<&SweepText::base>,
     Need::Required},
    {"description", "text", "the question that the sweep asks",
     inside<&SweepText::question, &SweepQuestion::description>},
    {"variants", "map of names: {fast: {cluster.network.bandwidth: 400 Gb/s}}",
     "changes of the base, as --set makes them; each is asked at every point of the grid", read_variants},
    {"baseline", "name of a variant",
     "ratios refer to it; default: base, the base itself, which is then a variant next to those named; without "
     "variants ratios refer to the first row",
     read_as<&SweepText::baseline>},
    {"grid", "map of lists: {plan.stages: [2, 4, 8]}",
     "every combination of these values, the last key fastest; applied after the variant", read_grid},
    {"where", "comparison, or list of them",
     "the points to evaluate: plan.stages * plan.data_parallel <= 64 and peak_memory < 79 GiB", read_where},
    {"metrics",
     "list of step_time | samples_per_s | samples_per_s_per_device | tokens_per_s | tokens_per_s_per_device | mfu | "
     "bubble | peak_memory | headroom | devices | speed_up | hfu | longest_span | weights_memory, and of the whole "
     "training (campaign) days | "
     "device_hours | cost | energy_kwh | goodput | days_expected | cost_expected",
     "the columns; default: step_time, samples_per_s, tokens_per_s, mfu, bubble, peak_memory, speed_up, and days, "
     "cost, days_expected, cost_expected where the whole training was asked for",
     read_metrics},
    {"replan", "true | false", "the planner chooses the plan of every point again; default: false",
     inside<&SweepText::question, &SweepQuestion::replan>},
};

// The one map of the file.
const Yaml* sweep_map(Reader& reader, const Yaml& root) {
  const At top{root};
  if (!is_map(reader, top, "a map with the one key sweep:")) return nullptr;
  const Yaml* sweep = root.find("sweep");
  if (!sweep && root.find("model")) {
    reader.errors.add(root.place, "this is a scenario; a sweep file has the one key sweep: with base: and grid:");
    return nullptr;
  }
  for (const auto& [key, value] : root.map)
    if (key.text != "sweep" && key.text != "version") unknown_key(reader, top, key, {"sweep", "version"});
  if (const Yaml* version = root.find("version")) check_version(reader, top.child("version", *version));
  if (!sweep) missing_key(reader, top, "sweep", "a map with base: and grid:");
  return sweep;
}

// ---- variants and their baseline ------------------------------------------------------------------------------------

// The base itself is a variant where ratios refer to it.
void settle_variants(Reader& reader, SweepText& text) {
  SweepQuestion& question = text.question;
  const bool named = !text.baseline.value.empty();
  const auto number_of = [&](const std::string& name) {
    return std::ranges::find(question.variants, name) - question.variants.begin();
  };
  const std::string baseline = named ? text.baseline.value : "base";
  const bool given = number_of(baseline) < static_cast<std::ptrdiff_t>(question.variants.size());
  if (named && !given && baseline != "base") {
    std::vector<std::string> known = question.variants;
    known.emplace_back("base");
    reader.errors.add(text.baseline.place, "sweep.baseline", unknown_name(baseline.substr(0, 64), known));
    return;
  }
  if (!given) {
    question.variants.insert(question.variants.begin(), baseline);
    text.variants.insert(text.variants.begin(), std::vector<Assignment>{});
  }
  question.baseline = static_cast<std::size_t>(number_of(baseline));
}

// A key of the grid would silently undo what a variant says about it.
void refuse_both(Reader& reader, const SweepText& text) {
  for (std::size_t v = 0; v < text.variants.size(); ++v)
    for (const Assignment& change : text.variants[v])
      for (const auto& axis : text.axes)
        if (axis.front().keys == change.keys)
          reader.errors.add(change.value.place,
                            fmt::format("sweep.variants.{}: {} is a key of the grid, too; keep one of them",
                                        text.question.variants[v], fmt::join(change.keys, ".")));
}

void check_size(Reader& reader, const SweepText& text) {
  auto points = static_cast<double>(text.question.variants.size());
  for (const SweepAxis& axis : text.question.axes)
    points *= static_cast<double>(axis.texts.size());
  if (points > static_cast<double>(kMostSweepPoints))
    reader.errors.add(text.grid_at, "sweep.grid",
                      fmt::format("{:.0f} points (variants x values of every key) are more than {}; ask for fewer "
                                  "values, or in several sweeps",
                                  points, kMostSweepPoints));
}

// ---- where ----------------------------------------------------------------------------------------------------------

std::vector<std::string> known_terms(const SweepQuestion& question) {
  auto known = mapped<std::string>(question.axes, &SweepAxis::key);
  for (const SweepFigureName& each : kSweepFigures)
    known.emplace_back(each.name);
  for (const char* key : {"plan.stages", "plan.virtual_stages", "plan.data_parallel", "plan.tensor_parallel",
                          "plan.context_parallel", "training.global_batch_size", "training.micro_batch_size",
                          "training.micro_batches", "cluster.nodes", "cluster.node.devices", "model.layers"})
    if (std::ranges::find(known, key) == known.end()) known.emplace_back(key);
  return known;
}

// Every term must be known, and both sides of one unit: found out now, not at the thousandth point.
void check_where(Reader& reader, const SweepText& text, const Scenario& base, std::vector<Comparison>& where) {
  const auto amount = [&](const Place& place, const std::string& key) -> std::optional<Magnitude> {
    if (const SweepFigureName* found = find_sweep_figure(key)) {
      if (found->figure == SweepFigure::SpeedUp)
        throw InputError(place, "sweep.where", "speed_up is known only when all rows are there; filter the CSV by it");
      return Magnitude{1, found->unit};
    }
    for (std::size_t i = 0; i < text.axes.size(); ++i)
      if (text.question.axes[i].key == key)
        for (const auto& of_value : text.question.axes[i].amounts)
          if (of_value) return of_value;
    if (const auto of_base = magnitude_under(base, key)) return of_base;
    throw InputError(place, "sweep.where", unknown_name(key.substr(0, 64), known_terms(text.question)));
  };
  for (const Placed<std::string>& written : text.where) {
    try {
      for (Comparison& comparison : parse_condition(written.value, written.place)) {
        holds(comparison, [&](const std::string& key) { return amount(written.place, key); });
        where.push_back(std::move(comparison));
      }
    } catch (const InputError& error) {
      reader.errors.add(error);
    }
  }
}

}  // namespace

SweepFile::SweepFile(const std::string& path, const ReadOptions& options) {
  Errors errors;
  ReadOptions own = options;
  own.set.clear();
  Reader reader{own, errors};
  const Yaml root = read_yaml(path, options);
  SweepText text;
  if (const Yaml* sweep = sweep_map(reader, root))
    read_fields<SweepText>(reader, At{root}.child("sweep", *sweep), kSweep, text);
  errors.throw_if_any();
  settle_variants(reader, text);
  refuse_both(reader, text);
  check_size(reader, text);
  if (text.axes.empty() && text.variants.size() < 2) errors.add(root.place, "nothing varies: write variants: or grid:");
  errors.throw_if_any();

  text.question.file = path == "-" ? "standard input" : path;
  text.question.base = relative_to(root.place, text.base.value);
  {
    const Yaml base = [&] {
      try {
        return read_yaml(text.question.base, options);
      } catch (const InputError& error) {
        throw InputError(text.base.place, std::string("sweep.base: ") + error.what());
      }
    }();
    if (base.find("sweep"))
      throw InputError(text.base.place, "sweep.base",
                       fmt::format("{} is a sweep itself; name a scenario", in_quotes(text.question.base)));
  }
  base_ = std::make_unique<PointReader>(text.question.base, options);
  check_where(reader, text, base_->read({}), text.question.where);
  errors.throw_if_any();
  question_ = std::move(text.question);
  variants_ = std::move(text.variants);
  axes_ = std::move(text.axes);
  check_readable();
}

std::vector<const Assignment*> SweepFile::changes(std::int64_t point) const {
  auto list =
      mapped<const Assignment*>(variants_[question_.variant(point)], [](const Assignment& change) { return &change; });
  const std::vector<std::size_t> values = question_.values(point);
  for (std::size_t i = 0; i < axes_.size(); ++i)
    list.push_back(&axes_[i][values[i]]);
  return list;
}

// A point that makes no scenario is a row with its reason. A variant, or a value of the grid, with which none of the
// points that have it can be read is a slip of the pen.
void SweepFile::check_readable() {
  Errors errors;
  const auto readable = [&](std::int64_t point) {
    try {
      base_->read(changes(point));
      return true;
    } catch (const InputError&) {
      return false;
    }
  };
  const auto check = [&](const std::string& name, const std::vector<const Assignment*>& alone, const auto& has_it) {
    try {
      base_->read(alone);
    } catch (const InputError& error) {
      std::int64_t tried = 0;
      for (std::int64_t point = 0; point < question_.points() && tried < kMostTried; ++point)
        if (has_it(point) && (++tried, readable(point))) return true;
      // It may be of a place in the base, which does not say who asked.
      if (error.first().place.file == question_.file)
        errors.add(error);
      else
        errors.add(Place{question_.file, 0, 0}, "sweep." + name, error.what());
      return false;
    }
    return true;
  };
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    auto alone = mapped<const Assignment*>(variants_[v], [](const Assignment& change) { return &change; });
    check("variants." + question_.variants[v], alone,
          [&](std::int64_t point) { return question_.variant(point) == v; });
  }
  for (std::size_t i = 0; i < axes_.size(); ++i)
    for (std::size_t value = 0; value < axes_[i].size(); ++value) {
      const bool good = check("grid." + question_.axes[i].key, {&axes_[i][value]},
                              [&](std::int64_t point) { return question_.values(point)[i] == value; });
      if (!good && value == 0) break;  // most likely the key: no need to say it of every value
    }
  errors.throw_if_any();
}

std::vector<SectionDoc> sweep_docs() {
  return {document<SweepText>("sweep", kSweep)};
}

}  // namespace pipewright::io
