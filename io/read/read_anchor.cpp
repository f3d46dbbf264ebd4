// training.framework.anchor of a scenario: a small run whose memory was measured.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "core/question/memory_anchor.hpp"
#include "io/import/logged_memory.hpp"
#include "io/import/run_file.hpp"
#include "io/read/expect_text.hpp"
#include "io/yaml/changes.hpp"
#include "io/yaml/flat_values.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

// Whether it sets an anchor, or keys that hold one.
bool sets_anchor(const Assignment& change) {
  constexpr std::string_view kAnchorKeys[] = {"training", "framework", "anchor"};
  const Yaml* value = &change.value;
  for (std::size_t i = 0; i < std::size(kAnchorKeys); ++i) {
    if (i < change.keys.size() && change.keys[i] != kAnchorKeys[i]) return false;
    if (i >= change.keys.size() && (value = value->find(kAnchorKeys[i])) == nullptr) return false;
  }
  return true;
}

void read_set(Reader& reader, const At& at, MemoryAnchor& anchor) {
  std::vector<Assignment> changes;
  read_changes(reader, at, changes);
  for (const Assignment& change : changes)
    if (sets_anchor(change))
      reader.errors.add(
          change.value.place, path(at),
          fmt::format("the run of an anchor has no anchor of its own; remove {}", fmt::join(change.keys, ".")));
  for (const Assignment& change : changes)
    anchor.set.emplace_back(fmt::format("{}", fmt::join(change.keys, ".")), flow_text(change.value));
}

void write_set(YamlText& out, std::string_view key, const MemoryAnchor& anchor) {
  if (anchor.set.empty()) return;
  out.open(key);
  for (const auto& [name, value] : anchor.set)
    out.line(name, value);
  out.close();
}

void read_place(Reader& reader, const At& at, MemoryAnchor& anchor) {
  read_where(reader, at, anchor.where);
  if (anchor.where && anchor.where->first == Where::All)
    reader.error(at, "is not one device; write fullest, last or the number of a stage");
}

void write_place(YamlText& out, std::string_view key, const MemoryAnchor& anchor) {
  if (!anchor.where || anchor.where->first == Where::Fullest) return;
  out.line(key, anchor.where->first == Where::Last ? "last" : value_text(anchor.where->second));
}

constexpr Field<MemoryAnchor> kAnchor[] = {
    {"set", "map of keys and values, e.g. {model.layers: 4}",
     "what the run had differently from the scenario as its file has it; --set, vary and sweeps do not change the run",
     read_set, write_set},
    {"where", "fullest | last | number of a stage", "whose device the figures are of; default: fullest", read_place,
     write_place},
    {"held", "size", "that PyTorch has allocated between steps", member<&MemoryAnchor::held>},
    {"allocated", "size", "the most that PyTorch had allocated", member<&MemoryAnchor::allocated>},
    {"reserved", "size", "the most that its allocator had reserved", member<&MemoryAnchor::reserved>},
    {"in_use", "size", "of the device at the same time, as nvidia-smi shows it: with context and communicators",
     member<&MemoryAnchor::in_use>},
    {"log", "file name, from the scenario's folder",
     "of the run, as Megatron-LM, nanotron or torchtitan prints it, or the file that `pipewright import` has made of "
     "it: for what is not given here",
     changed<&MemoryAnchor::log>},
    {"source", "text", "whose run it is", changed<&MemoryAnchor::source>},
};

// Of a log, or of the file that `pipewright import` has made of one.
LoggedMemory memory_of(const std::string& file) {
  if (!is_run_file(file)) return read_logged_memory(file);
  const ImportedRun run = read_run_file(file);
  if (!run.log) return {};
  return {.held = {}, .allocated = run.log->max_allocated, .reserved = run.log->max_reserved, .place = {}};
}

// Figures from the log that are not given.
void read_log(Reader& reader, const At& at, MemoryAnchor& anchor) {
  const Yaml& log = *at.yaml.find("log");
  try {
    const LoggedMemory logged = memory_of(relative_to(log.place, anchor.log));
    if (!anchor.held) anchor.held = logged.held;
    if (!anchor.allocated) anchor.allocated = logged.allocated;
    if (!anchor.reserved) anchor.reserved = logged.reserved;
  } catch (const InputError& error) {
    reader.errors.add(log.place, path(at) + ".log", fmt::format("{}", error.what()));
  }
}

// Each figure holds the one before it.
void check_order(Reader& reader, const At& at, const MemoryAnchor& anchor) {
  const std::pair<const char*, std::optional<Bytes>> figures[] = {
      {"held", anchor.held}, {"allocated", anchor.allocated}, {"reserved", anchor.reserved}, {"in_use", anchor.in_use}};
  const std::pair<const char*, std::optional<Bytes>>* less = nullptr;
  for (const auto& figure : figures) {
    if (!figure.second) continue;
    if (less != nullptr && *less->second > *figure.second)
      reader.errors.add(
          at.yaml.place, path(at),
          fmt::format("{} is more than {}, which holds it; are the units right?", less->first, figure.first));
    less = &figure;
  }
}

bool told_by_key(const Yaml& from, const Yaml& to, const std::string& key) {
  if (!from.is(Yaml::Type::Map) || !to.is(Yaml::Type::Map)) return false;
  const auto dotted = [](const YamlEntry& entry) { return entry.first.text.find('.') != std::string::npos; };
  if (std::ranges::any_of(from.map, dotted) || std::ranges::any_of(to.map, dotted)) return false;
  const auto other_form = [&](const YamlEntry& entry) {
    return is_model_form(entry.first.text) && !from.find(entry.first.text);
  };
  return key != "model" || std::ranges::none_of(to.map, other_form);
}

// What turns one tree into the other, as `set` takes it; null removes a key.
void add_differences(const Yaml& from, const Yaml& to, const std::string& key, KeysAndValues& set) {
  if (flow_text(from) == flow_text(to)) return;
  if (!told_by_key(from, to, key)) return set.emplace_back(key, flow_text(to)), void();
  for (const auto& [name, value] : from.map)
    if (!to.find(name.text)) set.emplace_back(key + "." + name.text, "null");
  for (const auto& [name, value] : to.map) {
    const Yaml* const old = from.find(name.text);
    add_differences(old ? *old : Yaml{}, value, key + "." + name.text, set);
  }
}

}  // namespace

void read_anchor(Reader& reader, const At& at, FrameworkMemory& framework) {
  auto anchor = std::make_shared<MemoryAnchor>();
  const std::size_t before = reader.errors.count();
  read_fields<MemoryAnchor>(reader, at, kAnchor, *anchor);
  anchor->place = Place(at.yaml.place);
  if (reader.errors.count() == before && !anchor->log.empty()) read_log(reader, at, *anchor);
  if (reader.errors.count() > before) return;
  if (!anchor->allocated && !anchor->reserved)
    reader.errors.add(at.yaml.place, path(at), "has no figure to go by; write allocated, reserved or log");
  if (anchor->in_use && !anchor->reserved)
    reader.errors.add(at.yaml.place, path(at), "in_use says nothing without reserved; add it");
  check_order(reader, at, *anchor);
  framework.anchor = std::move(anchor);
}

void write_anchor(YamlText& out, std::string_view key, const FrameworkMemory& framework) {
  write_section<&FrameworkMemory::anchor, kAnchor>(out, key, framework);
}

MemoryAnchor resolved_anchor(MemoryAnchor anchor, const Yaml& base, const Yaml& run) {
  anchor.set.clear(), anchor.log.clear();
  for (const char* section : {"model", "cluster", "training", "plan", "cost"})
    add_differences(*base.find(section), *run.find(section), section, anchor.set);
  return anchor;
}

SectionDoc anchor_doc() {
  return document<MemoryAnchor>("training.framework.anchor", kAnchor);
}

}  // namespace pipewright::io
