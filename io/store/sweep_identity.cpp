#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/folds.hpp"
#include "core/question/profile.hpp"
#include "io/read/read_file.hpp"
#include "io/read/read_sweep.hpp"
#include "io/store/sha256.hpp"
#include "io/store/sweep_store.hpp"
#include "io/yaml/flat_values.hpp"

namespace pipewright::io {
namespace {

// Texts are kept to say what differs; of models with thousands of layers a hash must do.
constexpr std::size_t kLongestText = 65536;

std::string kept(std::string text) {
  return text.size() <= kLongestText ? text : "sha256 " + sha256(text) + "\n";
}

std::string text_of(const Scenario& scenario) {
  std::string text;
  for (const auto& [key, value] : flat_values(scenario))
    text += fmt::format("{} = {}\n", key, value);
  if (!scenario.profile_file.empty())
    text += fmt::format("profile = sha256 {}\n", sha256(read_file(scenario.profile_file)));
  return kept(std::move(text));
}

// Of the points `begin + n % run + n / run * period` the first that can be read as a scenario, or, where those that are
// tried all fail, that.
struct Points {
  std::int64_t begin, run, period;
};
std::string text_of_first(PointReader& reader, const SweepFile& file, const Points& points) {
  for (std::int64_t n = 0; n < kMostTried; ++n) {
    const std::int64_t point = points.begin + n % points.run + n / points.run * points.period;
    if (point >= file.question().points() || (points.period == 0 && n >= points.run)) break;
    try {
      return text_of(reader.read(file.changes(point)));
    } catch (const InputError&) {  // another point may do
    }
  }
  return "none of its points is a scenario\n";
}

KeysAndValues lines(const std::string& text) {
  KeysAndValues list;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const std::size_t sign = line.find(" = ");
    list.emplace_back(line.substr(0, sign), sign == std::string::npos ? "" : line.substr(sign + 3));
    begin = end + 1;
  }
  return list;
}

std::string first_difference(const std::string& there, const std::string& here) {
  const KeysAndValues a = lines(there), b = lines(here);
  const auto value = [](const KeysAndValues& list, const std::string& key) {
    const auto found = std::ranges::find_if(list, [&](const auto& each) { return each.first == key; });
    return found == list.end() ? std::string("absent") : found->second;
  };
  const auto told = [&](const std::string& key) {
    return fmt::format("{} is {} there and {} here", key, value(a, key).substr(0, 200), value(b, key).substr(0, 200));
  };
  for (const auto& [key, text] : b)
    if (value(a, key) != text) return told(key);
  for (const auto& [key, text] : a)
    if (value(b, key) != text) return told(key);
  return "the order of its lines";
}

}  // namespace

SweepIdentity identity_of(const SweepFile& file, const std::string& search) {
  const SweepQuestion& question = file.question();
  PointReader reader(file.base());
  SweepIdentity identity = {{"program", fmt::format("version = {}\n", PIPEWRIGHT_VERSION)}};
  identity.emplace_back("base", text_of(reader.read({})));
  identity.emplace_back("variants", fmt::format("names = {}\nbaseline = {}\n", fmt::join(question.variants, ", "),
                                                question.variants[question.baseline]));
  for (std::size_t v = 0; v < question.variants.size(); ++v)
    identity.emplace_back(
        "variant " + question.variants[v],
        text_of_first(reader, file,
                      {static_cast<std::int64_t>(v) * question.combinations(), question.combinations(), 0}));
  std::int64_t run = question.combinations();  // points in a row that have one value of a key
  for (std::size_t i = 0; i < question.axes.size(); ++i) {
    const SweepAxis& axis = question.axes[i];
    identity.emplace_back("grid " + axis.key, kept(fmt::format("values = {}\n", fmt::join(axis.texts, ", "))));
    const std::int64_t period = run;
    run /= static_cast<std::int64_t>(axis.texts.size());
    for (std::size_t value = 0; value < axis.texts.size(); ++value)
      if (!axis.amounts[value])  // may be the name of a file, what is in which counts
        identity.emplace_back(fmt::format("grid {}: {}", axis.key, axis.texts[value].substr(0, 200)),
                              text_of_first(reader, file, {static_cast<std::int64_t>(value) * run, run, period}));
  }
  auto where = text_over(question.where, &Comparison::text, " and ");
  identity.emplace_back("where", fmt::format("conditions = {}\n", where.empty() ? "none" : where));
  identity.emplace_back("replan", fmt::format("search = {}\n", question.replan ? search : "none"));
  return identity;
}

std::string difference(const SweepIdentity& there, const SweepIdentity& here) {
  for (std::size_t i = 0; i < std::max(there.size(), here.size()); ++i) {
    if (i == here.size()) return there[i].first + " is not part of the sweep here";
    if (i == there.size()) return here[i].first + " is not part of the sweep there";
    if (there[i].first != here[i].first) return fmt::format("{} there, {} here", there[i].first, here[i].first);
    if (there[i].second != here[i].second)
      return here[i].first + ": " + first_difference(there[i].second, here[i].second);
  }
  return "";
}

}  // namespace pipewright::io
