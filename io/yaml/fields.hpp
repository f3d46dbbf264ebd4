// One table per section of a file, three uses: it reads the section strictly, writes it back (`check --resolved`), and
// is its documentation.
//
//   constexpr Field<NodeLinks> kLinks[] = {
//       {"bandwidth", "bandwidth", "per direction", member<&NodeLinks::bandwidth, LinkRate>},
//
// Adding a key to the language is one line in such a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/cluster/cluster.hpp"
#include "core/units.hpp"
#include "io/text/errors.hpp"
#include "io/text/names.hpp"
#include "io/text/quantity.hpp"
#include "io/yaml/yaml.hpp"

namespace pipewright::core {
struct Model;
}

namespace pipewright::io {

struct ExpectAndVary;
struct KnownFiles;
struct ReadOptions;

// A value and the keys that lead to it. The path is put together when a message needs it.
struct At {
  const Yaml& yaml;
  const At* parent = nullptr;
  std::string_view key;      // "" at the root
  std::ptrdiff_t item = -1;  // number in a list

  At child(std::string_view name, const Yaml& value) const { return {value, this, name, -1}; }
  At child(std::ptrdiff_t number, const Yaml& value) const { return {value, this, {}, number}; }
  At entry(std::size_t i) const { return child(static_cast<std::ptrdiff_t>(i), yaml.list[i]); }
};
std::string path(const At& at);  // "cluster.node.links", "model.layers.3.forward"

inline constexpr int kMostFilesDeep = 8;

// What the readers of one scenario share.
struct Reader {
  const ReadOptions& options;
  Errors& errors;
  const Model* model = nullptr;                     // once it is read: cuts may name its layers
  std::map<std::string, Place> origins{};           // of every value read through a table, by path
  std::map<std::string, std::string> sources{};     // of figures written as {value: ..., source: ...}, by path
  std::map<std::string, Provenance> provenances{};  // of those that say `provenance: assumed`, too
  bool keep_origins = true;                         // not for the layers of a model: there may be a million
  bool sourced = false;                             // figures of this section may be {value: ..., source: ...}
  int files_deep = 0;                               // references followed to get here, at most kMostFilesDeep
  KnownFiles* known_files = nullptr;                // what was read of them already, where scenarios are read in series
  const char* below_zero = "";                      // what the law of the value that is read says of numbers below 0
  ExpectAndVary* more = nullptr;                    // where `expect:` and `vary:` go; absent: checked and dropped

  // `path: "value" clause`, at the place of the value.
  void error(const At& at, const std::string& clause);
};

enum class Need { Optional, Required };

// YAML text under construction, with the origin of every value as a comment.
class YamlText {
 public:
  YamlText(const std::map<std::string, Place>* origins, std::map<std::string, std::string> sources,
           std::map<std::string, Provenance> provenances = {})
      : origins_(origins), sources_(std::move(sources)), provenances_(std::move(provenances)) {}

  void line(std::string_view key, const std::string& value);
  void item(const std::string& value, const Place& place);  // of a list
  void open(std::string_view key);                          // a nested map or list
  void close();
  template <class List, class Text>  // a list: `text` of each
  void items(std::string_view key, const List& list, const Text& text) {
    open(key);
    for (const auto& each : list)
      item(text(each), {});
    close();
  }
  std::string text() const { return text_; }

 private:
  std::string full_path(std::string_view key) const;
  std::string sourced(const std::string& value, const std::string& path) const;
  void add(const std::string& entry, std::string origin);

  std::string text_;
  std::vector<std::string> path_;
  const std::map<std::string, Place>* origins_;
  std::map<std::string, std::string> sources_;
  std::map<std::string, Provenance> provenances_;
};

template <class T>
struct Access {
  using Read = void (*)(Reader&, const At&, T&);
  using Write = void (*)(YamlText&, std::string_view key, const T&);  // writes nothing for an absent value

  Read read;
  Write write;
};
template <class T>
struct Field {
  std::string_view key;
  std::string_view takes;    // what stands there: "time", "whole number", "none | full"
  std::string_view meaning;  // one line, with the default
  Access<T> access;
  Need need;

  using Read = typename Access<T>::Read;
  using Write = typename Access<T>::Write;
  using Text = std::string_view;
  constexpr Field(Text name, Text what, Text says, Access<T> both, Need needed = Need::Optional)
      : key(name), takes(what), meaning(says), access(both), need(needed) {}
  constexpr Field(Text name, Text what, Text says, Read reads, Write writes, Need needed = Need::Optional)
      : Field(name, what, says, Access<T>{reads, writes}, needed) {}
  constexpr Field(Text name, Text what, Text says, Read reads, Need needed = Need::Optional)  // is not written back
      : Field(name, what, says, Access<T>{reads, nullptr}, needed) {}

  void write(YamlText& out, const T& target) const {
    if (access.write) access.write(out, key, target);
  }
};

// The documentation of one key, and of one section.
struct FieldDoc {
  std::string_view key, takes, meaning;
  bool required;
};
struct SectionDoc {
  std::string name;  // "plan", "cluster.node.links"
  std::vector<FieldDoc> fields;
};

template <class T>
SectionDoc document(std::string name, std::span<const Field<T>> fields) {
  SectionDoc doc{std::move(name), {}};
  for (const Field<T>& field : fields)
    doc.fields.push_back({field.key, field.takes, field.meaning, field.need == Need::Required});
  return doc;
}

// ---- values ---------------------------------------------------------------------------------------------------------
// Each returns whether there was a good value; else an error has been added.
bool read_value(Reader& reader, const At& at, Time& value);
bool read_value(Reader& reader, const At& at, Bytes& value);
bool read_value(Reader& reader, const At& at, Flops& value);
bool read_value(Reader& reader, const At& at, Bandwidth& value);
bool read_value(Reader& reader, const At& at, FlopRate& value);
bool read_value(Reader& reader, const At& at, Power& value);
bool read_value(Reader& reader, const At& at, double& value);
bool read_value(Reader& reader, const At& at, std::int64_t& value);
bool read_value(Reader& reader, const At& at, int& value);
bool read_value(Reader& reader, const At& at, bool& value);
bool read_value(Reader& reader, const At& at, std::string& value);

// The text of a scalar, or nullptr and an error that says what is needed.
const std::string* scalar(Reader& reader, const At& at, std::string_view needed);
bool is_map(Reader& reader, const At& at, std::string_view needed);
bool is_list(Reader& reader, const At& at, std::string_view needed);

// `unknown "bfloat16"; use bf16; known: ...`: of what is no name of ours, what it is here.
std::string unknown_value(std::string_view text, const std::vector<std::string_view>& known);

template <Enumeration E>
bool read_value(Reader& reader, const At& at, E& value) {
  const std::string* text = scalar(reader, at, "a name");
  if (!text) return false;
  std::vector<std::string_view> known;
  for (const auto& [name, enumerator] : kNames<E>) {
    if (name == *text) return value = enumerator, true;
    known.push_back(name);
  }
  reader.errors.add(at.yaml.place, path(at), unknown_value(*text, known));
  return false;
}

template <class V>
bool read_value(Reader& reader, const At& at, std::optional<V>& value) {
  V read{};
  if (!read_value(reader, at, read)) return false;
  return value = read, true;
}

template <class V>
bool read_value(Reader& reader, const At& at, Placed<V>& value) {
  value.place = at.yaml.place;
  return read_value(reader, at, value.value);
}

template <class V>
bool read_value(Reader& reader, const At& at, std::vector<V>& values) {
  if (!is_list(reader, at, "a list")) return false;
  values.clear();
  bool good = true;
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i)
    good &= read_value(reader, at.entry(i), values.emplace_back());
  return good;
}

// A read value must obey its law: "" or the clause of an error.
template <class V>
const V& plain(const V& value) {
  return value;
}
template <class V>
const V& plain(const Placed<V>& value) {
  return value.value;
}
template <class V>
const auto& plain(const std::optional<V>& value) {
  return plain(*value);
}

constexpr std::int64_t kLargestCount = 1'000'000'000;

// Laws are types: a template argument of `read_as`. No number is below 0: its reader refuses a sign.
struct Any {
  const char* operator()(const auto&) const { return ""; }
};
struct AtLeast1 {
  const char* operator()(std::int64_t value) const {
    if (value < 1) return "must be at least 1";
    return value > kLargestCount ? "is more than 1000000000; write a smaller number" : "";
  }
};
struct AtLeast2 {
  const char* operator()(std::int64_t value) const { return value >= 2 ? "" : "must be at least 2"; }
};
struct Positive {
  template <class T>
  const char* operator()(const T& value) const {
    return value > T{} ? "" : "must be more than 0";
  }
};
struct LinkRate {
  const char* operator()(Bandwidth rate) const {
    return rate.value > 0 ? "" : "must be more than 0; for links that take no time write kind: ideal";
  }
};
struct DeviceRate {
  const char* operator()(const auto& rate) const {
    return rate.value > 0 ? "" : "must be more than 0; leave it out when it is not known";
  }
};
struct Share {
  const char* operator()(double value) const { return value > 0 && value <= 1 ? "" : "must be more than 0, at most 1"; }
};
struct FromZeroToOne {
  const char* operator()(double value) const { return value >= 0 && value <= 1 ? "" : "must be from 0 to 1"; }
};
struct Below1 {
  const char* operator()(double value) const {
    return value >= 0 && value < 1 ? "" : "must be at least 0, less than 1";
  }
};
// core/cluster/bands.hpp: below 1 - band = 0.05 the lower end would say nothing.
struct Band {
  const char* operator()(double value) const {
    return value >= 0 && value <= 0.95 ? ""
                                       : "must be at least 0, at most 0.95; of what is not known at all write 0.95";
  }
};
struct Factor {
  const char* operator()(double value) const { return value >= 1 ? "" : "must be at least 1; 1 means none"; }
};

// What a law says of numbers below 0: "" of what is no number, and of what may be 0.
template <class Law, class V>
const char* below_zero() {
  if constexpr (std::is_same_v<V, double> || std::is_same_v<V, std::int64_t> || std::is_same_v<V, int>)
    return Law{}(V{-1});
  else if constexpr (requires { typename V::rep; })
    return Law{}(V{static_cast<typename V::rep>(-1)});
  else
    return "";
}

// Whether there was a value that obeys the law; else an error has been added.
template <class Law, class V>
bool read_lawful(Reader& reader, const At& at, V& value) {
  using Plain = std::remove_cvref_t<decltype(plain(value))>;
  const char* const outer = std::exchange(reader.below_zero, below_zero<Law, Plain>());
  const bool good = read_value(reader, at, value);
  reader.below_zero = outer;
  if (!good) return false;
  if (const char* broken = Law{}(plain(value)); *broken) return reader.error(at, broken), false;
  return true;
}

// `Owner` is the table's struct, or one that it is made of.
template <auto Member, class Law = Any, class Owner>
void read_as(Reader& reader, const At& at, Owner& target) {
  read_lawful<Law>(reader, at, target.*Member);
}

// ---- the way back ---------------------------------------------------------------------------------------------------
template <class Tag, class Rep>
std::string value_text(Quantity<Tag, Rep> value) {
  return to_text(value);
}
std::string value_text(double value);
std::string value_text(std::int64_t value);
std::string value_text(int value);
std::string value_text(bool value);
std::string value_text(const std::string& value);
template <Enumeration E>
std::string value_text(E value) {
  return std::string(name(value));
}
template <class V>
std::string value_text(const std::vector<V>& values) {
  std::string text = "[";
  for (const auto& value : values)
    text += (text.size() > 1 ? ", " : "") + value_text(value);
  return text + "]";
}
template <class V>
std::string value_text(const Placed<V>& value) {
  return value_text(value.value);
}

template <auto Member, class Owner>
void write_as(YamlText& out, std::string_view key, const Owner& target) {
  const auto& value = target.*Member;
  if constexpr (requires { value.has_value(); }) {
    if (value) out.line(key, value_text(*value));
  } else {
    out.line(key, value_text(value));
  }
}

template <auto Member, class Owner>  // what the struct has by itself is left out
void write_changed(YamlText& out, std::string_view key, const Owner& target) {
  static const Owner by_itself{};
  if (plain(target.*Member) != plain(by_itself.*Member)) write_as<Member>(out, key, target);
}

// Of a field that is one member of the table's struct, or of one that it is made of: `read_as` and `write_as`.
template <auto Member, class Law>
struct MemberAccess {
  template <class Owner>
  constexpr operator Access<Owner>() const {
    return {read_as<Member, Law, Owner>, write_as<Member, Owner>};
  }
};
template <auto Member, class Law = Any>
constexpr MemberAccess<Member, Law> member;

template <auto Member, class Law>  // likewise, with `write_changed`
struct ChangedAccess {
  template <class Owner>
  constexpr operator Access<Owner>() const {
    return {read_as<Member, Law, Owner>, write_changed<Member, Owner>};
  }
};
template <auto Member, class Law = Any>
constexpr ChangedAccess<Member, Law> changed;

template <auto Outer, auto Member, class Law>  // a member of a member
struct InsideAccess {
  template <class Owner>
  constexpr operator Access<Owner>() const {
    return {
        [](Reader& reader, const At& at, Owner& target) { read_as<Member, Law>(reader, at, target.*Outer); },
        [](YamlText& out, std::string_view key, const Owner& target) { write_as<Member>(out, key, target.*Outer); }};
  }
};
template <auto Outer, auto Member, class Law = Any>
constexpr InsideAccess<Outer, Member, Law> inside;

// ---- sections -------------------------------------------------------------------------------------------------------
// `use plan.stages`, or `expert parallelism is not modelled yet: docs/guide/scope.md`, of a key as other programs call
// it; "".
std::string meant_by(std::string_view key);
void unknown_key(Reader& reader, const At& at, const YamlKey& key, std::vector<std::string_view> known);
void missing_key(Reader& reader, const At& at, std::string_view key, std::string_view takes);

// The struct says which table it takes.
template <class T>
using FieldsOf = std::span<const Field<std::type_identity_t<T>>>;

// Reads a map by its table, in the order of the table. Unknown and missing keys are errors.
template <class T>
void read_fields(Reader& reader, const At& at, FieldsOf<T> fields, T& target) {
  if (!is_map(reader, at, "a map")) return;
  std::vector<std::string_view> known;
  for (const auto& [key, value] : at.yaml.map) {
    bool found = false;
    for (const Field<T>& field : fields)
      found |= field.key == key.text;
    if (found) continue;
    if (known.empty())
      for (const Field<T>& field : fields)
        known.push_back(field.key);
    unknown_key(reader, at, key, known);
  }
  for (const Field<T>& field : fields) {
    const Yaml* value = at.yaml.find(field.key);
    if (!value) {
      if (field.need == Need::Required) missing_key(reader, at, field.key, field.takes);
      continue;
    }
    const At here = at.child(field.key, *value);
    if (reader.keep_origins) reader.origins[path(here)] = value->place;
    field.access.read(reader, here, target);
  }
}

template <class T>
void write_fields(YamlText& out, FieldsOf<T> fields, const T& target) {
  for (const Field<T>& field : fields)
    field.write(out, target);
}

// {terms: values, fixed_ns: 3000, ...}: on one line.
std::string on_one_line(const YamlText& text);
template <class T>
std::string flow(FieldsOf<T> fields, const T& value) {
  YamlText out(nullptr, {});
  write_fields(out, fields, value);
  return on_one_line(out);
}

// A section within a section: a member that has a table, or an optional one.
template <auto Member, const auto& fields, class Owner>
void read_section(Reader& reader, const At& at, Owner& target) {
  auto& value = target.*Member;
  if constexpr (requires { value.has_value(); })
    read_fields(reader, at, fields, value.emplace());
  else
    read_fields(reader, at, fields, value);
}

// Under its key: of an optional or a pointer what it holds, or nothing.
template <class Value, class Write>
void write_below(YamlText& out, std::string_view key, const Value& value, const Write& write) {
  if constexpr (requires { *value; }) {
    if (value) write_below(out, key, *value, write);
  } else {
    out.open(key), write(out, value), out.close();
  }
}

template <auto Member, const auto& fields, class Owner>
void write_section(YamlText& out, std::string_view key, const Owner& target) {
  write_below(out, key, target.*Member, [](YamlText& below, const auto& value) { write_fields(below, fields, value); });
}

template <auto Member, const auto& fields>
struct SectionAccess {
  template <class Owner>
  constexpr operator Access<Owner>() const {
    return {read_section<Member, fields, Owner>, write_section<Member, fields, Owner>};
  }
};
template <auto Member, const auto& fields>
constexpr SectionAccess<Member, fields> section;

// Likewise, of a member that is read and written as a whole elsewhere.
template <auto Member, auto Write, class Owner>
void write_map(YamlText& out, std::string_view key, const Owner& target) {
  write_below(out, key, target.*Member, Write);
}

template <auto Member, auto Read, auto Write>
struct MapAccess {
  template <class Owner>
  constexpr operator Access<Owner>() const {
    return {[](Reader& reader, const At& at, Owner& target) { Read(reader, at, target.*Member); },
            write_map<Member, Write, Owner>};
  }
};
template <auto Member, auto Read, auto Write>
constexpr MapAccess<Member, Read, Write> in_map;

// A list of such maps, one a line.
template <auto Member, const auto& fields, class Owner>
void read_maps(Reader& reader, const At& at, Owner& target) {
  if (!is_list(reader, at, "a list of maps")) return;
  for (std::size_t i = 0; i < at.yaml.list.size() && !reader.errors.full(); ++i)
    read_fields(reader, at.entry(i), fields, (target.*Member).emplace_back());
}

template <auto Member, const auto& fields, class Owner>
void write_maps(YamlText& out, std::string_view key, const Owner& target) {
  if ((target.*Member).empty()) return;
  out.items(key, target.*Member, [](const auto& each) { return flow(fields, each); });
}

template <auto Member, const auto& fields>
struct MapsAccess {
  template <class Owner>
  constexpr operator Access<Owner>() const {
    return {read_maps<Member, fields, Owner>, write_maps<Member, fields, Owner>};
  }
};
template <auto Member, const auto& fields>
constexpr MapsAccess<Member, fields> maps;

}  // namespace pipewright::io
