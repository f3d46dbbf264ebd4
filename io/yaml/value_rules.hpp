// Prices, failures and power as text. A wrong value is told with what the value is, its law and an example, in the same
// words for a key of a file, for --set and for an option.
//
//     campaign.mtbf: "50000" has no unit; write the mean time between failures of one device, more than 0, e.g. "50000
//     h"
#pragma once

#include <string_view>

#include "io/text/quantity.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::io {

template <class T>
struct ValueRule {
  std::string_view needed;
  Parsed<T> (*read)(std::string_view text);
  std::string_view (*broken)(T value);  // "" or what law a good value breaks

  Parsed<T> operator()(std::string_view text) const;
};

extern const ValueRule<double> kPriceRule, kFitRule;  // "95%" is 0.95
extern const ValueRule<Time> kMtbfRule, kCheckpointRule, kRestartRule, kIntervalRule;
extern const ValueRule<Power> kPowerRule;

// A field of a section that keeps to a rule: `read_as` with the rule's words.
template <auto Member, auto& rule, class Owner>
void read_by_rule(Reader& reader, const At& at, Owner& target) {
  const bool sourced = reader.sourced && at.yaml.is(Yaml::Type::Map);  // {value: 700 W, source: ...}
  const Yaml* const inner = sourced ? at.yaml.find("value") : &at.yaml;
  if (inner != nullptr) {
    const At value = sourced ? at.child("value", *inner) : at;
    const std::string* text = scalar(reader, value, rule.needed);
    if (!text) return;
    if (const auto parsed = rule(*text); !parsed.value) return reader.error(value, parsed.why);
  }
  read_value(reader, at, target.*Member);
}

}  // namespace pipewright::io
