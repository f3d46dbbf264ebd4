// Prices, failures and power as text. A wrong value is told with what the value is, its law and an example, in the same
// words for a key of a file, for --set and for an option.
//
//     campaign.mtbf: "50000" has no unit; write the mean time between failures of one device, more than 0, e.g. "50000
//     h"
#pragma once

#include <string_view>

#include "io/text/quantity.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright {

struct PriceRule {
  static constexpr std::string_view needed =
      "the price of one device for one hour, in one currency throughout, more than 0 and less than 1e9, e.g. 2.50";
  static Parsed<double> parse(std::string_view text);
};
struct MtbfRule {
  static constexpr std::string_view needed =
      "the mean time between failures of one device, more than 0, e.g. \"50000 h\"";
  static Parsed<Time> parse(std::string_view text);
};
struct PowerRule {
  static constexpr std::string_view needed = "what one device draws at most, more than 0, e.g. \"700 W\"";
  static Parsed<Power> parse(std::string_view text);
};
struct FitRule {
  static constexpr std::string_view needed =
      "the probability with which a plan must fit, more than 0 %, at most 100 %, e.g. 95%";
  static Parsed<double> parse(std::string_view text);  // "95%" is 0.95
};
struct CheckpointRule {
  static constexpr std::string_view needed =
      "how long the training stands still while a checkpoint is written, more than 0, at most a year, e.g. \"60 s\"";
  static Parsed<Time> parse(std::string_view text);
};
struct RestartRule {
  static constexpr std::string_view needed =
      "the time from a failure until the training goes on, 0 or more, at most a year, e.g. \"10 min\"";
  static Parsed<Time> parse(std::string_view text);
};
struct IntervalRule {
  static constexpr std::string_view needed =
      "the time of training between two checkpoints, more than 0, at most a year, e.g. \"30 min\"";
  static Parsed<Time> parse(std::string_view text);
};

// A field of a section that keeps to a rule: `read_as` with the rule's words.
template <auto Member, class Rule, class Owner>
void read_by_rule(Reader& reader, const At& at, Owner& target) {
  const bool sourced = reader.sourced && at.yaml.is(Yaml::Type::Map);  // {value: 700 W, source: ...}
  const Yaml* const inner = sourced ? at.yaml.find("value") : &at.yaml;
  if (inner != nullptr) {
    const At value = sourced ? at.child("value", *inner) : at;
    const std::string* text = scalar(reader, value, Rule::needed);
    if (!text) return;
    if (const auto parsed = Rule::parse(*text); !parsed.value) return reader.error(value, parsed.why);
  }
  read_value(reader, at, target.*Member);
}

}  // namespace pipewright
