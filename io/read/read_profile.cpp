// profile: of a file that `calibrate` wrote.
#include <algorithm>
#include <tuple>

#include "core/question/profile.hpp"
#include "io/read/read_scenario.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

struct AtMostABillion {
  const char* operator()(double value) const { return value <= 1e9 ? "" : "is more than 1e9; write a smaller number"; }
};

constexpr Field<Fingerprint> kMachine[] = {
    {"processor", "text", "as the system names it", member<&Fingerprint::processor>, Need::Required},
    {"isa", "text", "backend and instructions of its arithmetic, or SMs", member<&Fingerprint::isa>, Need::Required},
    {"cores", "whole number >= 1", "that the measurement could use", member<&Fingerprint::cores, AtLeast1>,
     Need::Required},
    {"revision", "text", "of pipewright", changed<&Fingerprint::revision>},
    {"sms", "whole number >= 1", "of a GPU, that each worker had", changed<&Fingerprint::sms, AtLeast1>},
    {"driver", "text", "of the GPU", changed<&Fingerprint::driver>},
};

constexpr Field<LinearTime> kLinear[] = {
    {"fixed_ns", "number >= 0", "ns", member<&LinearTime::fixed_ns, AtMostABillion>, Need::Required},
    {"ns_per_unit", "number >= 0", "ns per byte", member<&LinearTime::ns_per_unit, AtMostABillion>, Need::Required},
};

constexpr Field<LayerTimes> kProfileLayer[] = {
    {"computes", "text", "operations with shapes and settings", member<&LayerTimes::key>, Need::Required},
    {"samples", "whole number >= 1", "of the micro-batch", member<&LayerTimes::samples, AtLeast1>, Need::Required},
    {"forward", "time", "mean over the middle half of the rounds", member<&LayerTimes::forward>, Need::Required},
    {"input_gradient", "time", "mean over the middle half of the rounds", member<&LayerTimes::input_gradient>,
     Need::Required},
    {"weight_gradient", "time", "mean over the middle half of the rounds", member<&LayerTimes::weight_gradient>,
     Need::Required},
    {"spread", "number >= 0", "of the forward, (p95 - p5) / mean", member<&LayerTimes::spread, AtMostABillion>},
    {"measured", "whole number", "how often", member<&LayerTimes::measured>},
    {"active", "whole number", "workers that computed meanwhile; 0: all of them", member<&LayerTimes::active>},
};

void read_version(Reader& reader, const At& at, MachineProfile&) {
  std::int64_t version = 0;
  if (read_value(reader, at, version) && version != kProfileVersion)
    reader.error(at, "is not a version of profiles that this program knows; calibrate again");
}

void read_layers(Reader& reader, const At& at, MachineProfile& profile) {
  if (!is_list(reader, at, "a list of layers")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
    read_fields<LayerTimes>(reader, at.entry(i), kProfileLayer, profile.layers.emplace_back());
  std::ranges::sort(profile.layers, [](const LayerTimes& a, const LayerTimes& b) {
    return std::tie(a.key, a.samples, a.active) < std::tie(b.key, b.samples, b.active);
  });
  for (std::size_t i = 1; i < profile.layers.size(); ++i)
    if (profile.layers[i].key == profile.layers[i - 1].key &&
        profile.layers[i].samples == profile.layers[i - 1].samples &&
        profile.layers[i].active == profile.layers[i - 1].active)
      reader.error(at, "names one layer twice for the same samples: " + profile.layers[i].key.substr(0, 80));
}

constexpr Field<UpdateTime> kUpdate[] = {
    {"optimizer", "sgd | momentum | rmsprop | adam", "whose step it is", member<&UpdateTime::optimizer>,
     Need::Required},
    {"fixed_ns", "number >= 0", "ns", inside<&UpdateTime::by_parameters, &LinearTime::fixed_ns, AtMostABillion>,
     Need::Required},
    {"ns_per_parameter", "number >= 0", "ns",
     inside<&UpdateTime::by_parameters, &LinearTime::ns_per_unit, AtMostABillion>, Need::Required},
};

void read_updates(Reader& reader, const At& at, MachineProfile& profile) {
  if (!is_list(reader, at, "a list of optimizer steps")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    UpdateTime update;
    read_fields<UpdateTime>(reader, at.entry(i), kUpdate, update);
    if (find_update(profile, update.optimizer) != nullptr) reader.error(at, "names one optimizer twice");
    profile.updates.push_back(update);
  }
}

constexpr Field<AllReduceTime> kAllReduce[] = {
    {"members", "whole number >= 1", "workers that add their gradients", member<&AllReduceTime::members, AtLeast1>,
     Need::Required},
    {"fixed_ns", "number >= 0", "ns", inside<&AllReduceTime::by_bytes, &LinearTime::fixed_ns, AtMostABillion>,
     Need::Required},
    {"ns_per_byte", "number >= 0", "ns", inside<&AllReduceTime::by_bytes, &LinearTime::ns_per_unit, AtMostABillion>,
     Need::Required},
};

void read_all_reduces(Reader& reader, const At& at, MachineProfile& profile) {
  if (!is_list(reader, at, "a list of all-reduces")) return;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    AllReduceTime time;
    read_fields<AllReduceTime>(reader, at.entry(i), kAllReduce, time);
    if (find_all_reduce(profile, time.members) != nullptr) reader.error(at, "names one number of members twice");
    profile.all_reduces.push_back(time);
  }
}

constexpr Field<MachineProfile> kMachineProfile[] = {
    {"version", "3", "of this format", read_version,
     [](YamlText& out, std::string_view key, const MachineProfile&) { out.line(key, std::to_string(kProfileVersion)); },
     Need::Required},
    {"name", "text", "for reports", member<&MachineProfile::name>, Need::Required},
    {"date", "text", "of the measurement", member<&MachineProfile::date>, Need::Required},
    {"backend", "text", "cpu or cuda: whose runs it prices", member<&MachineProfile::backend>, Need::Required},
    {"precision", "fp32 | tf32 | fp16 | bf16", "of the runs that were measured; default: fp32",
     member<&MachineProfile::precision>},
    {"machine", "map", "what was measured", section<&MachineProfile::machine, kMachine>, Need::Required},
    {"active", "whole number >= 1", "workers that computed at once", member<&MachineProfile::active, AtLeast1>,
     Need::Required},
    {"op_overhead", "time", "per op", member<&MachineProfile::op_overhead>, Need::Required},
    {"send", "map", "the sender's copy, by bytes", section<&MachineProfile::send, kLinear>, Need::Required},
    {"first_read", "map", "what the receiver's first read takes more than a later one, by bytes",
     section<&MachineProfile::first_read, kLinear>, Need::Required},
    {"handoff", "time", "until the receiver has noticed", member<&MachineProfile::handoff>, Need::Required},
    {"updates", "list of maps", "optimizer, fixed_ns, ns_per_parameter", read_updates,
     write_maps<&MachineProfile::updates, kUpdate>, Need::Required},
    {"all_reduces", "list of maps", "members, fixed_ns, ns_per_byte: sums of gradients", read_all_reduces,
     write_maps<&MachineProfile::all_reduces, kAllReduce>},
    {"probe", "time", "of a fixed piece of arithmetic on a core meanwhile; 0: not measured",
     member<&MachineProfile::probe>},
    {"common_error", "number >= 0", "relative error that all ops share",
     member<&MachineProfile::common_error, AtMostABillion>, Need::Required},
    {"independent_error", "number >= 0", "relative error of each op's own",
     member<&MachineProfile::independent_error, AtMostABillion>, Need::Required},
    {"source", "text", "one line for reports", member<&MachineProfile::source>, Need::Required},
    {"layers", "list of maps", "computes, samples, forward, input_gradient, weight_gradient, spread, measured, active",
     read_layers, write_maps<&MachineProfile::layers, kProfileLayer>, Need::Required},
};

}  // namespace

void read_profile_section(Reader& reader, const At& at, MachineProfile& profile) {
  read_fields<MachineProfile>(reader, at, kMachineProfile, profile);
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
  write_fields<MachineProfile>(out, kMachineProfile, profile);
  out.close();
  return out.text();
}

std::vector<SectionDoc> profile_docs() {
  return {document<MachineProfile>("profile", kMachineProfile), document<Fingerprint>("profile.machine", kMachine),
          document<LinearTime>("profile.send", kLinear)};
}

}  // namespace pipewright::io
