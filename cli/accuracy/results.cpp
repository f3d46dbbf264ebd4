#include "cli/accuracy/results.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/attempt.hpp"
#include "core/check.hpp"
#include "io/quote.hpp"
#include "io/read_file.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStudyFile = "study.json";
constexpr std::array<std::string_view, 5> kEndings = {".json", ".md", ".svg", ".yaml", ".csv"};  // that a study writes

bool comes_before(const StudyRecord& a, const StudyRecord& b) {
  return std::tie(a.part, a.name, a.attempt) < std::tie(b.part, b.name, b.attempt);
}

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
}

std::string setting(const StudySettings& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

// What of the settings is not the same: "backend: cuda there, cpu now". Scenarios that another --set changed are not
// listed beside it.
std::string differences(const StudySettings& there, const StudySettings& now) {
  constexpr std::size_t kMostNames = 3;
  std::vector<std::string> texts, scenarios;
  const auto said = [](std::string value) {
    std::replace(value.begin(), value.end(), '\n', ' ');
    return value.empty() ? "nothing" : value;
  };
  std::set<std::string> names;
  for (const auto* settings : {&there, &now})
    for (const auto& [name, unused] : *settings)
      names.insert(name);
  for (const std::string& name : names) {
    if (setting(there, name) == setting(now, name)) continue;
    if (name.starts_with(kScenarioSetting))
      scenarios.push_back(name.substr(kScenarioSetting.size()));
    else
      texts.push_back(fmt::format("{}: {} there, {} now", name, said(setting(there, name)), said(setting(now, name))));
  }
  if (!scenarios.empty() && setting(there, std::string(kSetSetting)) == setting(now, std::string(kSetSetting))) {
    const std::size_t more = scenarios.size() - std::min(scenarios.size(), kMostNames);
    scenarios.resize(scenarios.size() - more);
    texts.push_back(fmt::format("other scenarios: {}{}", fmt::join(scenarios, ", "),
                                more > 0 ? fmt::format(" and {} more", more) : ""));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

// "accuracy.md.a1B2c3", as a file is called until it is whole.
bool is_unfinished(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::size_t kRandom = 6;  // letters of mkstemp
  if (name.size() < kRandom + 2 || name[name.size() - kRandom - 1] != '.') return false;
  const bool random = std::all_of(name.end() - kRandom, name.end(),
                                  [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
  const std::string target = name.substr(0, name.size() - kRandom - 1);
  return random && std::any_of(kEndings.begin(), kEndings.end(), [&](auto ending) { return target.ends_with(ending); });
}

void clear_unfinished(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored) && is_unfinished(entry.path())) left.push_back(entry.path());
  for (const fs::path& path : left)
    fs::remove(path, ignored);
}

}  // namespace

std::string stamped(const std::string& path, std::string text) {
  const auto behind = [&](std::size_t at, std::string_view mark) { return text.insert(at, mark); };
  if (path.ends_with(".json")) {
    const std::size_t open = text.find('{');
    PP_CHECK(open != std::string::npos);
    return text.find("\"dry_run\": true", open) < open + 80 ? text : behind(open + 1, "\n  \"dry_run\": true,");
  }
  if (path.ends_with(".svg")) {
    const std::size_t end = text.find('>');
    PP_CHECK(end != std::string::npos);
    return behind(end + 1, "\n<!-- dry_run: true -->");
  }
  if (path.ends_with(".md")) return "<!-- dry_run: true -->\n" + text;
  return comment("dry_run: true") + text;  // .yaml, .csv
}

StudyResults::StudyResults(std::string folder, const StudySettings& settings, bool dry_run)
    : folder_(std::move(folder)),
      hash_(study_hash(settings)),
      set_(setting(settings, std::string(kSetSetting))),
      dry_run_(dry_run) {
  if (dry_run_) check_dry_run_folder(folder_);
  const std::string path = folder_ + "/" + std::string(kStudyFile);
  std::error_code absent;
  if (fs::exists(path, absent)) {
    const StudySettings there = parse_study_settings(read_file(path), path);
    if (const std::string other = differences(there, settings); !other.empty())
      throw InputError("--output: \"" + folder_ + "\" holds a study of other settings (" + other +
                       "); its results cannot be mixed with new ones: ask the same again, or name another folder");
    clear_unfinished(folder_);
    read_records();
    return;
  }
  if (fs::exists(folder_, absent) && (!fs::is_directory(folder_, absent) || !fs::is_empty(folder_, absent)))
    throw InputError("--output: \"" + folder_ + "\" holds something else than a study; name a new folder");
  made_folder(folder_);
  write_file(path, study_settings_json(settings, dry_run_));
}

StudyResults::StudyResults(std::string folder) : folder_(std::move(folder)) {
  const std::string path = folder_ + "/" + std::string(kStudyFile);
  std::error_code absent;
  if (!fs::is_regular_file(path, absent))
    throw InputError("--output: \"" + folder_ + "\" holds no results of `pipewright accuracy` (no " +
                     std::string(kStudyFile) + ")");
  const StudySettings there = parse_study_settings(read_file(path), path);
  hash_ = study_hash(there), set_ = setting(there, std::string(kSetSetting));
  const auto dry = there.find("dry_run");
  dry_run_ = dry != there.end() && dry->second == "true";
  read_records();
}

std::vector<std::string> StudyResults::set() const {
  std::vector<std::string> changes;
  for (std::size_t begin = 0; begin < set_.size();) {
    const std::size_t end = std::min(set_.find('\n', begin), set_.size());
    changes.push_back(set_.substr(begin, end - begin));
    begin = end + 1;
  }
  return changes;
}

void StudyResults::read_records() {
  for (int part = 1; part <= 6; ++part) {
    std::error_code absent;
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(fmt::format("{}/part-{}", folder_, part), absent))
      if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
    for (const std::string& path : paths) {
      StudyRecord record = parse_study_record(read_file(path), path);
      if (record.settings != hash_ || record.dry_run != dry_run_)
        throw InputError(path + ": belongs to a study with other settings; remove it to measure again");
      records_.push_back(std::move(record));
    }
  }
  std::sort(records_.begin(), records_.end(), comes_before);
}

std::string StudyResults::folder_of(int part) const {
  return made_folder(fmt::format("{}/part-{}", folder_, part));
}

std::string StudyResults::path_of(const StudyRecord& record) const {
  return fmt::format("{}/{}.attempt-{}.json", folder_of(record.part), record.name, record.attempt);
}

const StudyRecord* StudyResults::latest(int part, std::string_view name) const {
  const StudyRecord* found = nullptr;
  for (const StudyRecord& record : records_)
    if (record.part == part && record.name == name && (found == nullptr || record.attempt > found->attempt))
      found = &record;
  return found;
}

bool StudyResults::done(int part, std::string_view name) const {
  return std::any_of(records_.begin(), records_.end(),
                     [&](const StudyRecord& r) { return r.part == part && r.name == name && r.done(); });
}

bool StudyResults::failed(int part, std::string_view name) const {
  const StudyRecord* const last = latest(part, name);
  return last != nullptr && last->status == "failed" && !done(part, name);
}

int StudyResults::next_attempt(int part, std::string_view name) const {
  const StudyRecord* const last = latest(part, name);
  return last == nullptr ? 1 : last->attempt + 1;
}

void StudyResults::keep(StudyRecord record) {
  record.settings = hash_, record.dry_run = dry_run_;
  record.words.try_emplace("date", today());
  if (record.attempt > 0) drop(record.part, record.name, 0);
  write_file(path_of(record), study_record_json(record));
  forget(record.part, record.name, record.attempt);
  records_.push_back(std::move(record));
  std::sort(records_.begin(), records_.end(), comes_before);
}

void StudyResults::drop(int part, std::string_view name, int attempt) {
  std::error_code absent;
  for (const StudyRecord& record : records_)
    if (record.part == part && record.name == name && record.attempt == attempt) fs::remove(path_of(record), absent);
  forget(part, name, attempt);
}

void StudyResults::forget(int part, std::string_view name, int attempt) {
  std::erase_if(records_,
                [&](const StudyRecord& r) { return r.part == part && r.name == name && r.attempt == attempt; });
}

void StudyResults::write(const std::string& path, const std::string& text) const {
  write_file(path, dry_run_ ? stamped(path, text) : text);
}

void check_dry_run_folder(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(fs::absolute(folder, error), error);
  const fs::path resolved = error ? fs::absolute(folder) : path;
  fs::path above;
  for (const fs::path& step : resolved) {
    const bool devices = step == "devices" && above.filename() == "configs";
    // A folder docs of a source tree: other folders of that name are nobody's.
    const bool docs =
        step == "docs" && (fs::exists(above / "meson.build", error) || fs::exists(above / "configs", error));
    if (devices || docs)
      throw InputError("--output: a dry run measures nothing of a GPU, and \"" + folder + "\" lies under " +
                       (devices ? "configs/devices" : "docs") +
                       ", where measured results are kept; name another folder");
    above /= step;
  }
}

}  // namespace pipewright
