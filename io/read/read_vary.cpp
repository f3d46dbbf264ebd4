// Changes of a scenario, and vary: variants of it for `capacity`.
#include <algorithm>

#include <fmt/format.h>

#include "io/read/expect_text.hpp"
#include "io/yaml/changes.hpp"

namespace pipewright::io {
namespace {

std::string text_of(const std::vector<Assignment>& changes) {
  std::string text;
  for (const Assignment& change : changes)
    text += fmt::format("{}={}\n", fmt::join(change.keys, "."), flow_text(change.value));
  return text;
}

void add_point(ExpectAndVary& more, const std::vector<Assignment>& changes) {
  VariedPoint point;
  for (const Assignment& change : changes)
    point.values.emplace_back(fmt::format("{}", fmt::join(change.keys, ".")), flow_text(change.value));
  point.changes = number_of(more, changes);
  more.varied.push_back(std::move(point));
}

// {plan.stages: [1, 8], training.micro_batches: [4, 32]}: every combination, the last key fastest.
void read_product(Reader& reader, const At& at, ExpectAndVary& more) {
  struct Axis {
    std::vector<std::string> keys;
    const Yaml* values;
  };
  std::vector<Axis> axes;
  std::size_t points = 1;
  const std::size_t errors_before = reader.errors.count();
  for (const auto& [key, value] : at.yaml.map) {
    Axis axis{{}, &value};
    if (!read_keys(reader, key.place, path(at), key.text, axis.keys)) continue;
    const At here = at.child(key.text, value);
    if (!is_list(reader, here, "a list of values, e.g. [1, 8, 32]")) continue;
    if (value.list.empty()) {
      reader.error(here, "is empty; write at least one value");
      continue;
    }
    points = points > kMostVariedPoints ? points : points * value.list.size();
    axes.push_back(axis);
  }
  if (points > kMostVariedPoints)
    reader.errors.add(at.yaml.place, path(at),
                      fmt::format("more than {} combinations; vary fewer values", kMostVariedPoints));
  if (reader.errors.count() > errors_before) return;
  for (std::size_t number = 0; number < points; ++number) {
    std::vector<Assignment> changes;
    std::size_t rest = number;
    for (std::size_t i = axes.size(); i-- > 0;) {
      const std::size_t count = axes[i].values->list.size();
      changes.push_back({axes[i].keys, axes[i].values->list[rest % count]});
      rest /= count;
    }
    std::ranges::reverse(changes);
    add_point(more, changes);
  }
}

struct VaryDoc {};
constexpr Field<VaryDoc> kVary[] = {
    {"<key>", "list of values, e.g. plan.stages: [1, 8, 32]",
     "a row of `capacity` for each; several keys: every combination. Or a list of maps, a row each: "
     "[{plan.stages: 8, model.filters: 512}, ...]",
     [](Reader&, const At&, VaryDoc&) {}},
};

}  // namespace

void read_changes(Reader& reader, const At& at, std::vector<Assignment>& changes) {
  if (!is_map(reader, at, "a map of keys and values, e.g. {plan.stages: 8}")) return;
  for (const auto& [key, value] : at.yaml.map) {
    Assignment assignment;
    if (!read_keys(reader, key.place, path(at), key.text, assignment.keys)) continue;
    assignment.value = value;
    const auto same = [&](const Assignment& other) { return other.keys == assignment.keys; };
    std::erase_if(changes, same);  // a row wins over its table
    changes.push_back(std::move(assignment));
  }
}

int number_of(ExpectAndVary& more, const std::vector<Assignment>& changes) {
  if (changes.empty()) return -1;
  const std::string text = text_of(changes);
  for (std::size_t i = 0; i < more.changes.size(); ++i)
    if (text_of(more.changes[i]) == text) return static_cast<int>(i);
  more.changes.push_back(changes);
  return static_cast<int>(more.changes.size()) - 1;
}

void read_vary_section(Reader& reader, const At& at, ExpectAndVary& more) {
  const bool none = at.yaml.is(Yaml::Type::List) ? at.yaml.list.empty() : at.yaml.map.empty();
  if (at.yaml.is(Yaml::Type::Scalar) || at.yaml.is(Yaml::Type::Null) || none)
    return reader.error(at, "says nothing to vary; write e.g. {plan.stages: [1, 8, 32]}");
  if (at.yaml.is(Yaml::Type::Map)) return read_product(reader, at, more);
  if (at.yaml.list.size() > kMostVariedPoints)
    return reader.errors.add(at.yaml.place, path(at),
                             fmt::format("more than {} rows; vary fewer values", kMostVariedPoints));
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i) {
    std::vector<Assignment> changes;
    const At here = at.entry(i);
    read_changes(reader, here, changes);
    if (here.yaml.is(Yaml::Type::Map) && changes.empty())
      reader.error(here, "sets nothing; write e.g. {plan.stages: 8}");
    else
      add_point(more, changes);
  }
}

SectionDoc vary_doc() {
  return document<VaryDoc>("vary", kVary);
}

}  // namespace pipewright::io
