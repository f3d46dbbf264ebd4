// Families of networks: a name and a few whole numbers give the model, layer by layer, from first principles.
//
// A new family is one file here, one line in `families()` and one in core/meson.build. Scenarios name it as
//     model: {family: transformer, layers: 48, hidden: 2048, ...}
// and every parameter may be changed by `--set model.layers=96`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "core/model/graph.hpp"

namespace pipewright::core {

// A parameter of a family, or of an operator (`operator_table.hpp`).
struct FamilyParameter {
  std::string_view name;     // "layers"
  std::string_view meaning;  // one line
  // One of the four: a whole number within [least, most], one of the words in `choices` ("none | learned"), a text of
  // `letters`, or a list of words in `listed`.
  std::int64_t least = 1, most = 1'000'000;
  std::optional<std::int64_t> otherwise;  // default; absent: must be given
  std::string_view choices = "";          // "a | b | c"; the first is the default. yes/no is "no | yes"
  std::string_view letters = "";          // "MG*-E"; default: no text
  std::string_view listed = "";           // "q_proj | v_proj"; as a value: "[q_proj, v_proj]"; default: no list

  bool is_number() const { return choices.empty() && letters.empty() && listed.empty(); }
};

// What a scenario gave: texts by name, as written.
using FamilyArguments = std::map<std::string, Placed<std::string>, std::less<>>;

// Checked arguments, defaults filled in.
class FamilyValues {
 public:
  std::int64_t operator[](std::string_view name) const;  // a number
  std::string_view choice(std::string_view name) const;  // a word
  bool is(std::string_view name, std::string_view word) const { return choice(name) == word; }
  // InputError at the place where `name` was given (or at the model): "<name>: <value> <message>".
  [[noreturn]] void refuse(std::string_view name, const std::string& message) const;

  std::map<std::string, std::int64_t, std::less<>> numbers;
  std::map<std::string, std::string, std::less<>> words;
  std::map<std::string, Place, std::less<>> places;
  Place place;       // of the model
  std::string path;  // "model"
};

std::vector<std::string_view> words_of(std::string_view choices);  // "a | b" -> {"a", "b"}
std::vector<std::string> words_of_list(std::string_view text);     // "[a, b]", "a, b" -> {"a", "b"}
std::string takes(const FamilyParameter& parameter);               // "whole number 1..512", "no | yes"

// Checks names, ranges and words, fills in the defaults. Throws one InputError that holds a line for every wrong
// argument, each with its place, the legal values and the nearest known name. `path`: "model", "model.layers.3".
FamilyValues check_arguments(std::span<const FamilyParameter> parameters, const FamilyArguments& arguments,
                             const std::string& path, const Place& place);

struct Family {
  std::string_view name;
  std::string_view summary;  // one line: what it is, whose
  std::span<const FamilyParameter> parameters;
  Model (*build)(const FamilyValues&);
};

std::span<const Family> families();
const Family* find_family(std::string_view name);

// The model with its arguments checked, and `Model::form` to write it back. Throws InputError as above.
Model build_family(const Family& family, const FamilyArguments& arguments, const Place& place);

}  // namespace pipewright::core
