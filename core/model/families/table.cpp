#include "core/model/families/table.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/folds.hpp"
#include "core/model/families/network_families.hpp"
#include "core/model/families/transformer_families.hpp"

namespace pipewright::core {

std::vector<std::string_view> words_of(std::string_view choices) {
  std::vector<std::string_view> found;
  while (!choices.empty()) {
    const std::size_t bar = choices.find(" | ");
    found.push_back(choices.substr(0, bar));
    choices = bar == std::string_view::npos ? std::string_view{} : choices.substr(bar + 3);
  }
  return found;
}

std::vector<std::string> words_of_list(std::string_view text) {
  std::vector<std::string> found;
  std::string word;
  const auto take = [&] {
    if (!word.empty()) found.push_back(std::exchange(word, {}));
  };
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ',' || c == ' ')
      take();
    else
      word += c;
  }
  take();
  return found;
}

std::string takes(const FamilyParameter& parameter) {
  if (!parameter.listed.empty()) return "list of " + std::string(parameter.listed);
  if (!parameter.choices.empty()) return std::string(parameter.choices);
  if (!parameter.letters.empty()) return "text of the letters " + std::string(parameter.letters);
  return "whole number " + std::to_string(parameter.least) + ".." + std::to_string(parameter.most);
}

namespace {

// The errors of one model.
struct Lines {
  std::string path;
  std::vector<Fault> faults;
  void add(const Place& place, std::string_view key, std::string text) {
    faults.push_back({place, path + "." + std::string(key), std::move(text)});
  }
};

void read_number(const FamilyParameter& parameter, const Placed<std::string>& given, FamilyValues& values,
                 Lines& errors) {
  const std::string& text = given.value;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string range =
      "use a whole number from " + std::to_string(parameter.least) + " to " + std::to_string(parameter.most);
  const std::string name(parameter.name);
  const bool octal = text.size() > 1 && text[0] == '0';
  if (error != std::errc{} || end != text.data() + text.size() || octal)
    return errors.add(given.place, name, "\"" + text.substr(0, 64) + "\" is not a whole number; " + range);
  const bool written_default = parameter.otherwise == number;  // 0 of "default: hidden / heads"
  if ((number < parameter.least || number > parameter.most) && !written_default)
    return errors.add(given.place, name, text + " is out of range; " + range);
  values.numbers.emplace(name, number);
}

void read_word(const FamilyParameter& parameter, const Placed<std::string>& given, FamilyValues& values,
               Lines& errors) {
  const auto known = words_of(parameter.choices);
  std::string word = given.value;
  if (parameter.choices == "no | yes" || parameter.choices == "yes | no") {  // as YAML writes switches elsewhere
    if (word == "true") word = "yes";
    if (word == "false") word = "no";
  }
  if (std::ranges::find(known, word) == known.end())
    return errors.add(given.place, parameter.name, unknown_name(word.substr(0, 64), known));
  values.words.emplace(std::string(parameter.name), word);
}

// Of the character that begins at that byte of a text in UTF-8, from 1 on.
std::size_t places_of(std::string_view text, std::size_t byte) {
  return 1 + at(std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte),
                              [](char c) { return (c & 0xC0) != 0x80; }));
}

void read_letters(const FamilyParameter& parameter, const Placed<std::string>& given, FamilyValues& values,
                  Lines& errors) {
  const std::size_t other = given.value.find_first_not_of(parameter.letters);
  if (given.value.empty() || other != std::string::npos)
    return errors.add(
        given.place, parameter.name,
        (given.value.empty() ? std::string("is empty")
                             : "has another letter at place " + std::to_string(places_of(given.value, other))) +
            "; write a text of the letters " + std::string(parameter.letters));
  values.words.emplace(std::string(parameter.name), given.value);
}

void read_list(const FamilyParameter& parameter, const Placed<std::string>& given, FamilyValues& values,
               Lines& errors) {
  const auto known = words_of(parameter.listed);
  const std::vector<std::string> words = words_of_list(given.value);
  std::string text;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (std::ranges::find(known, *word) == known.end())
      return errors.add(given.place, parameter.name, unknown_name(word->substr(0, 64), known));
    if (std::find(words.begin(), word, *word) != word)
      return errors.add(given.place, parameter.name, "\"" + *word + "\" stands there twice; once is enough");
    text += (text.empty() ? "[" : ", ") + *word;
  }
  if (words.empty())
    return errors.add(given.place, parameter.name, "is empty; list some of " + std::string(parameter.listed));
  values.words.emplace(std::string(parameter.name), text + "]");
}

}  // namespace

std::int64_t FamilyValues::operator[](std::string_view name) const {
  const auto found = numbers.find(name);
  PP_CHECK(found != numbers.end());
  return found->second;
}

std::string_view FamilyValues::choice(std::string_view name) const {
  const auto found = words.find(name);
  PP_CHECK(found != words.end());
  return found->second;
}

void FamilyValues::refuse(std::string_view name, const std::string& message) const {
  const auto given = places.find(name);
  const auto number = numbers.find(name);
  const std::string value =
      number != numbers.end() ? std::to_string(number->second) : std::string(choice(name).substr(0, 64));
  throw InputError(given != places.end() ? given->second : place, path + "." + std::string(name),
                   value + " " + message);
}

std::span<const Family> families() {
  // clang-format off
  static const std::vector<Family> table = {
      kTransformerFamily,
      kTransformerMtFamily,
      kGptFamily,
      kDecoderFamily,
      kBertFamily,
      kT5Family,
      kVitFamily,
      kVgg16Family,
      kVgg19Family,
      kAmoebanetDFamily,
      kAmoebanetBFamily,
      kResnet50Family,
      kResnet101Family,
      kResnet152Family,
      kAlexnetFamily,
      kUnetFamily,
      kGnmtFamily,
      kAwdLmFamily,
      kS2vtFamily,
      kMlpFamily,
  };
  // clang-format on
  return table;
}

const Family* find_family(std::string_view name) {
  const auto all = families();
  const auto found = std::ranges::find_if(all, [&](const Family& family) { return family.name == name; });
  return found == all.end() ? nullptr : &*found;
}

FamilyValues check_arguments(std::span<const FamilyParameter> parameters, const FamilyArguments& arguments,
                             const std::string& path, const Place& place) {
  FamilyValues values;
  values.place = place, values.path = path;
  Lines errors{path, {}};
  auto names = mapped<std::string_view>(parameters, &FamilyParameter::name);
  for (const auto& [name, given] : arguments) {
    values.places.emplace(name, given.place);
    const auto parameter = std::ranges::find_if(parameters, [&](const FamilyParameter& p) { return p.name == name; });
    if (parameter == parameters.end())
      errors.add(given.place, name.substr(0, 64), unknown_name(name.substr(0, 64), names));
    else if (parameter->is_number())
      read_number(*parameter, given, values, errors);
    else if (!parameter->listed.empty())
      read_list(*parameter, given, values, errors);
    else if (!parameter->letters.empty())
      read_letters(*parameter, given, values, errors);
    else
      read_word(*parameter, given, values, errors);
  }
  for (const FamilyParameter& parameter : parameters) {
    if (arguments.find(parameter.name) != arguments.end()) continue;
    if (!parameter.letters.empty() || !parameter.listed.empty())
      values.words.emplace(std::string(parameter.name), std::string());
    else if (!parameter.choices.empty())
      values.words.emplace(std::string(parameter.name), std::string(words_of(parameter.choices).front()));
    else if (parameter.otherwise)
      values.numbers.emplace(std::string(parameter.name), *parameter.otherwise);
    else
      errors.add(place, parameter.name,
                 "is missing; give a " + takes(parameter) + ", " + std::string(parameter.meaning));
  }
  if (!errors.faults.empty()) throw InputError(std::move(errors.faults));
  return values;
}

Model build_family(const Family& family, const FamilyArguments& arguments, const Place& place) {
  const FamilyValues values = check_arguments(family.parameters, arguments, "model", place);
  try {
    Model model = family.build(values);
    model.place = place;
    model.form.emplace_back("family", family.name);
    for (const FamilyParameter& parameter : family.parameters) {
      const bool word = !parameter.is_number();
      if (word ? values.choice(parameter.name).empty() : values[parameter.name] < parameter.least)
        continue;  // which stands for a default in words
      model.form.emplace_back(
          parameter.name, word ? std::string(values.choice(parameter.name)) : std::to_string(values[parameter.name]));
    }
    for (Layer& layer : model.layers)
      layer.place = place;
    return model;
  } catch (const InputError& error) {
    if (error.first().key.starts_with("model.")) throw;
    throw InputError(place, "model", "family " + std::string(family.name) + ": " + error.what());
  }
}

}  // namespace pipewright::core
