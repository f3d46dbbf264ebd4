// profile: of a file that `calibrate` wrote.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright {
namespace {

struct NotNegative {
  const char* operator()(double value) const {
    if (!(value >= 0)) return "must be 0 or more";
    return value > 1e9 ? "is more than 1e9; write a smaller number" : "";
  }
  const char* operator()(Time value) const { return value >= Time{} ? "" : "must be 0 or more"; }
};

constexpr Field<Fingerprint> kMachine[] = {
    {"processor", "text", "as the system names it", Need::Required, read_as<&Fingerprint::processor>,
     write_as<&Fingerprint::processor>},
    {"isa", "text", "backend and instructions of its arithmetic, or SMs", Need::Required, read_as<&Fingerprint::isa>,
     write_as<&Fingerprint::isa>},
    {"cores", "whole number >= 1", "that the measurement could use", Need::Required,
     read_as<&Fingerprint::cores, AtLeast1>, write_as<&Fingerprint::cores>},
    {"revision", "text", "of pipewright", Need::Optional, read_as<&Fingerprint::revision>,
     write_text<&Fingerprint::revision>},
    {"sms", "whole number >= 1", "of a GPU, that each worker had", Need::Optional, read_as<&Fingerprint::sms, AtLeast1>,
     [](YamlText& out, std::string_view key, const Fingerprint& machine) {
       if (machine.sms > 0) out.line(key, value_text(machine.sms));
     }},
    {"driver", "text", "of the GPU", Need::Optional, read_as<&Fingerprint::driver>, write_text<&Fingerprint::driver>},
};

constexpr Field<LinearTime> kLinear[] = {
    {"fixed_ns", "number >= 0", "ns", Need::Required, read_as<&LinearTime::fixed_ns, NotNegative>,
     write_as<&LinearTime::fixed_ns>},
    {"ns_per_unit", "number >= 0", "ns per byte", Need::Required, read_as<&LinearTime::ns_per_unit, NotNegative>,
     write_as<&LinearTime::ns_per_unit>},
};

constexpr Field<LayerTimes> kLayer[] = {
    {"computes", "text", "operations with shapes and settings", Need::Required, read_as<&LayerTimes::key>,
     write_as<&LayerTimes::key>},
    {"samples", "whole number >= 1", "of the micro-batch", Need::Required, read_as<&LayerTimes::samples, AtLeast1>,
     write_as<&LayerTimes::samples>},
    {"forward", "time", "mean over the middle half of the rounds", Need::Required,
     read_as<&LayerTimes::forward, NotNegative>, write_as<&LayerTimes::forward>},
    {"input_gradient", "time", "mean over the middle half of the rounds", Need::Required,
     read_as<&LayerTimes::input_gradient, NotNegative>, write_as<&LayerTimes::input_gradient>},
    {"weight_gradient", "time", "mean over the middle half of the rounds", Need::Required,
     read_as<&LayerTimes::weight_gradient, NotNegative>, write_as<&LayerTimes::weight_gradient>},
    {"spread", "number >= 0", "of the forward, (p95 - p5) / mean", Need::Optional,
     read_as<&LayerTimes::spread, NotNegative>, write_as<&LayerTimes::spread>},
    {"measured", "whole number", "how often", Need::Optional, read_as<&LayerTimes::measured>,
     write_as<&LayerTimes::measured>},
    {"active", "whole number", "workers that computed meanwhile; 0: all of them", Need::Optional,
     read_as<&LayerTimes::active, NotBelow0>, write_as<&LayerTimes::active>},
};

template <auto Member>
void read_linear(Reader& reader, const At& at, MachineProfile& profile) {
  read_fields<LinearTime>(reader, at, kLinear, profile.*Member);
}
template <class T>
void write_map(YamlText& out, std::string_view key, std::span<const Field<T>> fields, const T& value) {
  out.open(key);
  for (const Field<T>& field : fields)
    field.write(out, field.key, value);
  out.close();
}
template <auto Member>
void write_linear(YamlText& out, std::string_view key, const MachineProfile& profile) {
  write_map<LinearTime>(out, key, kLinear, profile.*Member);
}

void read_version(Reader& reader, const At& at, MachineProfile&) {
  std::int64_t version = 0;
  if (read_value(reader, at, version) && version != kProfileVersion)
    reader.error(at, "is not a version of profiles that this program knows; calibrate again");
}

void read_layers(Reader& reader, const At& at, MachineProfile& profile) {
  if (!is_list(reader, at, "a list of layers")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
    read_fields<LayerTimes>(reader, at.child(static_cast<std::ptrdiff_t>(i), at.yaml.list[i]), kLayer,
                            profile.layers.emplace_back());
  std::sort(profile.layers.begin(), profile.layers.end(), [](const LayerTimes& a, const LayerTimes& b) {
    return std::tie(a.key, a.samples, a.active) < std::tie(b.key, b.samples, b.active);
  });
  for (std::size_t i = 1; i < profile.layers.size(); ++i)
    if (profile.layers[i].key == profile.layers[i - 1].key &&
        profile.layers[i].samples == profile.layers[i - 1].samples &&
        profile.layers[i].active == profile.layers[i - 1].active)
      reader.error(at, "names one layer twice for the same samples: " + profile.layers[i].key.substr(0, 80));
}

constexpr Field<UpdateTime> kUpdate[] = {
    {"optimizer", "sgd | momentum | rmsprop | adam", "whose step it is", Need::Required,
     read_as<&UpdateTime::optimizer>, write_as<&UpdateTime::optimizer>},
    {"fixed_ns", "number >= 0", "ns", Need::Required,
     [](Reader& reader, const At& at, UpdateTime& update) {
       read_as<&LinearTime::fixed_ns, NotNegative>(reader, at, update.by_parameters);
     },
     [](YamlText& out, std::string_view key, const UpdateTime& update) {
       write_as<&LinearTime::fixed_ns>(out, key, update.by_parameters);
     }},
    {"ns_per_parameter", "number >= 0", "ns", Need::Required,
     [](Reader& reader, const At& at, UpdateTime& update) {
       read_as<&LinearTime::ns_per_unit, NotNegative>(reader, at, update.by_parameters);
     },
     [](YamlText& out, std::string_view key, const UpdateTime& update) {
       write_as<&LinearTime::ns_per_unit>(out, key, update.by_parameters);
     }},
};

void read_updates(Reader& reader, const At& at, MachineProfile& profile) {
  if (!is_list(reader, at, "a list of optimizer steps")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    UpdateTime update;
    read_fields<UpdateTime>(reader, at.child(static_cast<std::ptrdiff_t>(i), at.yaml.list[i]), kUpdate, update);
    if (find_update(profile, update.optimizer) != nullptr) reader.error(at, "names one optimizer twice");
    profile.updates.push_back(update);
  }
}

constexpr Field<AllReduceTime> kAllReduce[] = {
    {"members", "whole number >= 1", "workers that add their gradients", Need::Required,
     read_as<&AllReduceTime::members, AtLeast1>, write_as<&AllReduceTime::members>},
    {"fixed_ns", "number >= 0", "ns", Need::Required,
     [](Reader& reader, const At& at, AllReduceTime& time) {
       read_as<&LinearTime::fixed_ns, NotNegative>(reader, at, time.by_bytes);
     },
     [](YamlText& out, std::string_view key, const AllReduceTime& time) {
       write_as<&LinearTime::fixed_ns>(out, key, time.by_bytes);
     }},
    {"ns_per_byte", "number >= 0", "ns", Need::Required,
     [](Reader& reader, const At& at, AllReduceTime& time) {
       read_as<&LinearTime::ns_per_unit, NotNegative>(reader, at, time.by_bytes);
     },
     [](YamlText& out, std::string_view key, const AllReduceTime& time) {
       write_as<&LinearTime::ns_per_unit>(out, key, time.by_bytes);
     }},
};

void read_all_reduces(Reader& reader, const At& at, MachineProfile& profile) {
  if (!is_list(reader, at, "a list of all-reduces")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    AllReduceTime time;
    read_fields<AllReduceTime>(reader, at.child(static_cast<std::ptrdiff_t>(i), at.yaml.list[i]), kAllReduce, time);
    if (find_all_reduce(profile, time.members) != nullptr) reader.error(at, "names one number of members twice");
    profile.all_reduces.push_back(time);
  }
}

std::string flow_text(const LayerTimes& layer) {
  return fmt::format(
      "{{computes: {}, samples: {}, forward: {}, input_gradient: {}, weight_gradient: {}, spread: {}, measured: {}, "
      "active: {}}}",
      value_text(layer.key), layer.samples, value_text(layer.forward), value_text(layer.input_gradient),
      value_text(layer.weight_gradient), value_text(layer.spread), layer.measured, layer.active);
}

constexpr Field<MachineProfile> kProfile[] = {
    {"version", "3", "of this format", Need::Required, read_version,
     [](YamlText& out, std::string_view key, const MachineProfile&) {
       out.line(key, std::to_string(kProfileVersion));
     }},
    {"name", "text", "for reports", Need::Required, read_as<&MachineProfile::name>, write_as<&MachineProfile::name>},
    {"date", "text", "of the measurement", Need::Required, read_as<&MachineProfile::date>,
     write_as<&MachineProfile::date>},
    {"backend", "text", "cpu or cuda: whose runs it prices", Need::Required, read_as<&MachineProfile::backend>,
     write_as<&MachineProfile::backend>},
    {"precision", "fp32 | tf32 | fp16 | bf16", "of the runs that were measured; default: fp32", Need::Optional,
     read_as<&MachineProfile::precision>, write_as<&MachineProfile::precision>},
    {"machine", "map", "what was measured", Need::Required,
     [](Reader& reader, const At& at, MachineProfile& p) { read_fields<Fingerprint>(reader, at, kMachine, p.machine); },
     [](YamlText& out, std::string_view key, const MachineProfile& p) {
       write_map<Fingerprint>(out, key, kMachine, p.machine);
     }},
    {"active", "whole number >= 1", "workers that computed at once", Need::Required,
     read_as<&MachineProfile::active, AtLeast1>, write_as<&MachineProfile::active>},
    {"op_overhead", "time", "per op", Need::Required, read_as<&MachineProfile::op_overhead, NotNegative>,
     write_as<&MachineProfile::op_overhead>},
    {"send", "map", "the sender's copy, by bytes", Need::Required, read_linear<&MachineProfile::send>,
     write_linear<&MachineProfile::send>},
    {"first_read", "map", "what the receiver's first read takes more than a later one, by bytes", Need::Required,
     read_linear<&MachineProfile::first_read>, write_linear<&MachineProfile::first_read>},
    {"handoff", "time", "until the receiver has noticed", Need::Required,
     read_as<&MachineProfile::handoff, NotNegative>, write_as<&MachineProfile::handoff>},
    {"updates", "list of maps", "optimizer, fixed_ns, ns_per_parameter", Need::Required, read_updates,
     [](YamlText& out, std::string_view key, const MachineProfile& p) {
       out.open(key);
       for (const UpdateTime& update : p.updates)
         out.item(fmt::format("{{optimizer: {}, fixed_ns: {}, ns_per_parameter: {}}}", name(update.optimizer),
                              value_text(update.by_parameters.fixed_ns), value_text(update.by_parameters.ns_per_unit)),
                  {});
       out.close();
     }},
    {"all_reduces", "list of maps", "members, fixed_ns, ns_per_byte: sums of gradients", Need::Optional,
     read_all_reduces,
     [](YamlText& out, std::string_view key, const MachineProfile& p) {
       if (p.all_reduces.empty()) return;
       out.open(key);
       for (const AllReduceTime& time : p.all_reduces)
         out.item(fmt::format("{{members: {}, fixed_ns: {}, ns_per_byte: {}}}", time.members,
                              value_text(time.by_bytes.fixed_ns), value_text(time.by_bytes.ns_per_unit)),
                  {});
       out.close();
     }},
    {"probe", "time", "of a fixed piece of arithmetic on a core meanwhile; 0: not measured", Need::Optional,
     read_as<&MachineProfile::probe, NotNegative>, write_as<&MachineProfile::probe>},
    {"common_error", "number >= 0", "relative error that all ops share", Need::Required,
     read_as<&MachineProfile::common_error, NotNegative>, write_as<&MachineProfile::common_error>},
    {"independent_error", "number >= 0", "relative error of each op's own", Need::Required,
     read_as<&MachineProfile::independent_error, NotNegative>, write_as<&MachineProfile::independent_error>},
    {"source", "text", "one line for reports", Need::Required, read_as<&MachineProfile::source>,
     write_as<&MachineProfile::source>},
    {"layers", "list of maps", "computes, samples, forward, input_gradient, weight_gradient, spread, measured, active",
     Need::Required, read_layers,
     [](YamlText& out, std::string_view key, const MachineProfile& p) {
       out.open(key);
       for (const LayerTimes& layer : p.layers)
         out.item(flow_text(layer), {});
       out.close();
     }},
};

}  // namespace

void read_profile_section(Reader& reader, const At& at, MachineProfile& profile) {
  read_fields<MachineProfile>(reader, at, kProfile, profile);
}

MachineProfile read_profile(const std::string& path, const ReadOptions& options) {
  Errors errors;
  Reader reader{options, errors};
  reader.keep_origins = false;
  MachineProfile profile;
  const Yaml yaml = read_reference(reader, path, "profile", {});
  errors.throw_if_any();
  read_profile_section(reader, At{yaml, nullptr, "profile", -1}, profile);
  errors.throw_if_any();
  return profile;
}

std::string profile_yaml(const MachineProfile& profile) {
  YamlText out(nullptr, {});
  out.open("profile");
  for (const Field<MachineProfile>& field : kProfile)
    field.write(out, field.key, profile);
  out.close();
  return out.text();
}

std::vector<SectionDoc> profile_docs() {
  return {document<MachineProfile>("profile", kProfile), document<Fingerprint>("profile.machine", kMachine),
          document<LinearTime>("profile.send", kLinear)};
}

}  // namespace pipewright
