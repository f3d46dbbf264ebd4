#include "io/store/sweep_store.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <type_traits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/read/read_condition.hpp"
#include "io/text/names.hpp"
#include "io/writers/json_text.hpp"

namespace pipewright::io {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kDatabaseSchema = "pipewright.sweep-db/1";
constexpr std::size_t kMostKeys = 1000;  // each is a column, of which SQLite allows 2000

constexpr std::string_view kLeftOutOutcome = "left_out";

// The columns of a row behind its point: kind in SQL, and the value in a row that has figures. The grid's follow.
struct Column {
  std::string_view name, type;
  StoreValue (*value)(const SweepRow&);
  void (*set)(SweepRow&, const StoreValue&);  // throws std::bad_variant_access for a value of another kind
};

double real(const StoreValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

template <auto Member>
constexpr Column column(std::string_view name) {
  using V = std::remove_cvref_t<decltype(std::declval<SweepRow>().*Member)>;
  const auto value = [](const SweepRow& row) -> StoreValue {
    if constexpr (std::is_same_v<V, std::optional<double>>)
      return row.*Member ? StoreValue(*(row.*Member)) : StoreValue(std::monostate{});
    else if constexpr (requires(V v) { v.value; })
      return (row.*Member).value;
    else
      return row.*Member;
  };
  const auto set = [](SweepRow& row, const StoreValue& held) {
    if constexpr (std::is_same_v<V, std::optional<double>>) {
      if (!std::holds_alternative<std::monostate>(held)) row.*Member = real(held);
    } else if constexpr (requires(V v) { v.value; }) {
      (row.*Member).value = std::get<std::int64_t>(held);
    } else if constexpr (std::is_same_v<V, double>) {
      row.*Member = real(held);
    } else {
      row.*Member = std::get<V>(held);
    }
  };
  constexpr bool text = std::is_same_v<V, std::string>;
  constexpr bool reals = std::is_same_v<V, double> || std::is_same_v<V, std::optional<double>>;
  return {name, text ? "TEXT" : reals ? "REAL" : "INTEGER", value, set};
}

// speed_up and plan_changes follow from other rows and are worked out when all are there.
constexpr std::array kFigureColumns = {
    column<&SweepRow::step_time>("step_time_ns"),
    column<&SweepRow::samples_per_s>("samples_per_s"),
    column<&SweepRow::tokens_per_s>("tokens_per_s"),
    column<&SweepRow::mfu>("mfu"),
    column<&SweepRow::hfu>("hfu"),
    column<&SweepRow::longest_span>("longest_span_s"),
    column<&SweepRow::weights_memory>("weights_memory_bytes"),
    column<&SweepRow::bubble>("bubble"),
    column<&SweepRow::peak_memory>("peak_memory_bytes"),
    column<&SweepRow::capacity>("capacity_bytes"),
    column<&SweepRow::devices>("devices"),
    column<&SweepRow::days>("days"),
    column<&SweepRow::device_hours>("device_hours"),
    column<&SweepRow::cost>("cost"),
    column<&SweepRow::energy_kwh>("energy_kwh"),
    column<&SweepRow::goodput>("goodput"),
    column<&SweepRow::plan>("plan_text"),
    column<&SweepRow::layers>("layers"),
};
// Before them point and outcome, behind them reason and variant.
constexpr std::size_t kBefore = 2, kReason = kBefore + kFigureColumns.size(), kBehind = 2;

std::string in_sql_quotes(const std::string& name) {
  std::string text = "\"";
  for (const char c : name)
    text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

// Of the grid's values, in its order. SQLite takes names that differ in case for one, so a key that is taken gets a
// mark behind it: "cost (grid)" beside the figure, "plan.X (2)" beside "plan.x". Nobody reads them back by name.
std::vector<std::string> grid_columns(const SweepQuestion& question) {
  const auto lower = [](std::string name) {
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return name;
  };
  std::set<std::string> fixed = {"point", "outcome", "reason", "variant"};
  for (const Column& column : kFigureColumns)
    fixed.emplace(column.name);
  std::set<std::string> taken = fixed;
  std::vector<std::string> columns;
  for (const SweepAxis& axis : question.axes) {
    std::string name = fixed.contains(lower(axis.key)) ? axis.key + " (grid)" : axis.key;
    for (int number = 2; !taken.insert(lower(name)).second; ++number)
      name = fmt::format("{} ({})", axis.key, number);
    columns.push_back(std::move(name));
  }
  return columns;
}

// ---- the question, as JSON --------------------------------------------------------------------------------------

std::string question_json(const SweepQuestion& question) {
  JsonText json;
  json.open('{').field("file", question.file).field("base", question.base);
  json.field("description", question.description).field("variants", question.variants);
  json.field("baseline", static_cast<std::int64_t>(question.baseline)).field("replan", question.replan);
  json.key("axes").open('[');
  for (const SweepAxis& axis : question.axes) {
    json.open('{').field("key", axis.key).field("texts", axis.texts).key("amounts").open('[');
    for (const std::optional<Magnitude>& amount : axis.amounts)
      if (amount)
        json.open('[').value(amount->value).value(static_cast<int>(amount->unit)).close();
      else
        json.null();
    json.close().close();
  }
  json.close().key("where").open('[');
  for (const Comparison& comparison : question.where)
    json.value(comparison.text);
  json.close().key("metrics").open('[');
  for (const SweepFigure metric : question.metrics)
    json.value(name_of(metric).name);
  json.close().close();
  return std::move(json).text();
}

SweepQuestion question_of(const std::string& text) {
  const Json json = Json::parse(text);
  SweepQuestion question;
  question.file = json.at("file"), question.base = json.at("base"), question.description = json.at("description");
  question.variants = json.at("variants").get<std::vector<std::string>>();
  question.baseline = json.at("baseline"), question.replan = json.at("replan");
  for (const Json& written : json.at("axes")) {
    SweepAxis axis{written.at("key"), written.at("texts").get<std::vector<std::string>>(), {}};
    for (const Json& amount : written.at("amounts")) {
      axis.amounts.emplace_back();
      if (amount.is_null()) continue;
      const int unit = amount.at(1);
      if (unit < 0 || unit > static_cast<int>(Unit::FlopPerSecond)) throw InputError("a unit that there is not");
      axis.amounts.back() = Magnitude{amount.at(0), static_cast<Unit>(unit)};
    }
    if (axis.texts.empty() || axis.amounts.size() != axis.texts.size()) throw InputError("a key without values");
    question.axes.push_back(std::move(axis));
  }
  for (const Json& comparison : json.at("where"))
    for (Comparison& each : parse_condition(comparison.get<std::string>(), {}))
      question.where.push_back(std::move(each));
  for (const Json& metric : json.at("metrics")) {
    const SweepFigureName* found = find_sweep_figure(metric.get<std::string>());
    if (found == nullptr) throw InputError("a figure that there is not");
    question.metrics.push_back(found->figure);
  }
  if (question.variants.empty() || question.baseline >= question.variants.size() ||
      question.points() > kMostSweepPoints)
    throw InputError("no good question");
  return question;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

}  // namespace

std::vector<StoreValue> values_of(const SweepQuestion& question, const SweepFinding& finding) {
  const SweepRow* const row = finding.row ? &*finding.row : nullptr;
  std::vector<StoreValue> values = {finding.point};
  values.emplace_back(std::string(row != nullptr ? name(row->outcome) : kLeftOutOutcome));
  for (const Column& column : kFigureColumns)
    values.push_back(row != nullptr && row->has_figures() ? column.value(*row) : std::monostate{});
  values.push_back(row != nullptr ? StoreValue(row->reason) : std::monostate{});
  values.emplace_back(question.variants[question.variant(finding.point)]);
  const std::vector<std::size_t> chosen = question.values(finding.point);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    values.emplace_back(question.axes[i].texts[chosen[i]]);
  return values;
}

// A row as SQLite gives it, up to its reason. Throws std::bad_variant_access where a value is of another kind.
SweepFinding finding_of(std::span<const StoreValue> values) {
  if (values.size() <= kReason) throw InputError("too few values");
  SweepFinding finding{std::get<std::int64_t>(values[0]), {}};
  const auto& word = std::get<std::string>(values[1]);
  if (word == kLeftOutOutcome) return finding;
  const auto outcome = std::ranges::find(kNames<SweepRow::Outcome>, word, &Name<SweepRow::Outcome>::first);
  if (outcome == std::end(kNames<SweepRow::Outcome>))
    throw InputError(fmt::format("outcome \"{}\"", word.substr(0, 64)));
  SweepRow& row = finding.row.emplace();
  row.point = finding.point;
  row.outcome = outcome->second;
  row.reason = std::get<std::string>(values[kReason]);
  if (row.has_figures())
    for (std::size_t i = 0; i < kFigureColumns.size(); ++i)
      kFigureColumns[i].set(row, values[kBefore + i]);
  return finding;
}

SweepStore::SweepStore(const std::string& path, Store::Access access) : store_(std::make_unique<Store>(path, access)) {}

bool SweepStore::empty() {
  bool any = false;
  store_->each("SELECT 1 FROM sqlite_master LIMIT 1", [&](auto) { any = true; });
  return !any;
}

void SweepStore::make(const SweepQuestion& question, const SweepIdentity& identity) {
  if (question.axes.size() > kMostKeys)
    throw InputError(fmt::format("{}: a database has room for {} keys of the grid, and there are {}; write -o FILE.csv",
                                 path(), kMostKeys, question.axes.size()));
  store_->run("BEGIN");
  store_->run("CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID");
  store_->run("CREATE TABLE identity(place INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL)");
  store_->run("CREATE TABLE shards(number INTEGER, of INTEGER, PRIMARY KEY(of, number)) WITHOUT ROWID");
  std::string columns = "CREATE TABLE points(point INTEGER PRIMARY KEY, outcome TEXT NOT NULL";
  for (const Column& column : kFigureColumns)
    columns += fmt::format(", {} {}", column.name, column.type);
  columns += ", reason TEXT, variant TEXT NOT NULL";
  for (const std::string& name : grid_columns(question))
    columns += ", " + in_sql_quotes(name) + " TEXT NOT NULL";
  store_->run(columns + ")");
  const auto meta = [&](const std::string& key, const std::string& value) {
    const std::array<StoreValue, 2> values = {key, value};
    store_->run("INSERT INTO meta VALUES(?, ?)", values);
  };
  meta("schema", std::string(kDatabaseSchema));
  meta("question", question_json(question));
  for (std::size_t i = 0; i < identity.size(); ++i) {
    const std::array<StoreValue, 3> values = {static_cast<std::int64_t>(i), identity[i].first, identity[i].second};
    store_->run("INSERT INTO identity VALUES(?, ?, ?)", values);
  }
  store_->run("COMMIT");
}

void SweepStore::load() {
  std::map<std::string, std::string> meta;
  const auto text = [&](const StoreValue& value) {
    if (const auto* held = std::get_if<std::string>(&value)) return *held;
    return std::string();
  };
  bool sweep = false;
  store_->each("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'", [&](auto) { sweep = true; });
  if (!sweep) store_->damaged("holds no sweep");
  store_->each("SELECT key, value FROM meta", [&](auto row) { meta[text(row[0])] = text(row[1]); });
  if (meta["schema"] != kDatabaseSchema)
    throw InputError(fmt::format("{}: is of schema \"{}\", and this program reads {}; use the program that wrote it",
                                 path(), meta["schema"].substr(0, 64), kDatabaseSchema));
  try {
    question_ = question_of(meta["question"]);
    if (meta.contains("asked"))
      for (const Json& option : Json::parse(meta["asked"]))
        asked_.emplace_back(option.at(0).get<std::string>(), option.at(1).get<std::string>());
  } catch (const InputError& error) {
    store_->damaged(fmt::format("the question in it cannot be read ({})", error.what()));
  } catch (const std::exception&) {  // of the JSON library, whose words help nobody
    store_->damaged("the question in it is not a JSON of one");
  }
  store_->each("SELECT name, value FROM identity ORDER BY place",
               [&](auto row) { identity_.emplace_back(text(row[0]), text(row[1])); });
  store_->each("SELECT number, of FROM shards ORDER BY of, number", [&](auto row) {
    const auto *number = std::get_if<std::int64_t>(&row[0]), *of = std::get_if<std::int64_t>(&row[1]);
    if (number == nullptr || of == nullptr || *number < 1 || *of < *number || *of > kMostSweepPoints)
      store_->damaged("a shard in it is none");
    shards_.push_back({static_cast<int>(*number), static_cast<int>(*of)});
  });
  insert_ = "INSERT INTO points VALUES(?";
  for (std::size_t i = 0; i < kReason + kBehind - 1 + question_.axes.size(); ++i)
    insert_ += ", ?";
  insert_ += ")";
}

SweepStore SweepStore::for_sweep(const std::string& path, const SweepQuestion& question,
                                 const SweepIdentity& identity) {
  SweepStore result(path, Store::Access::Write);
  if (result.empty()) result.make(question, identity);
  result.load();
  if (const std::string why = difference(result.identity_, identity); !why.empty())
    throw InputError(fmt::format("{}: holds the results of another sweep: {}; name another file with -o", path, why));
  // It is ours, so it may be written to: also the journal of a process that was killed is gone when this one ends.
  result.store_->run("PRAGMA journal_mode=DELETE");
  result.store_->run("PRAGMA user_version=1");
  return result;
}

SweepStore SweepStore::existing(const std::string& path) {
  SweepStore result(path, Store::Access::Read);
  result.load();
  return result;
}

std::vector<SweepFinding> SweepStore::findings() {
  std::string columns = "point, outcome";
  for (const Column& column : kFigureColumns)
    columns += fmt::format(", {}", column.name);
  columns += ", reason";
  std::vector<SweepFinding> found;
  store_->each("SELECT " + columns + " FROM points ORDER BY point", [&](std::span<const StoreValue> values) {
    try {
      found.push_back(finding_of(values));
    } catch (const InputError& error) {
      store_->damaged(fmt::format("row {} of it is none ({})", found.size() + 1, error.what()));
    } catch (const std::bad_variant_access&) {
      store_->damaged(fmt::format("row {} of it is none (a value of another kind)", found.size() + 1));
    }
    const std::int64_t point = found.back().point;
    if (point < 0 || point >= question_.points())
      store_->damaged(fmt::format("point {} in it is none of the {} of its sweep", point, question_.points()));
  });
  return found;
}

std::int64_t SweepStore::count() {
  std::int64_t number = 0;
  store_->each("SELECT count(*) FROM points", [&](auto row) { number = std::get<std::int64_t>(row[0]); });
  return number;
}

void SweepStore::keep(const std::vector<SweepFinding>& findings) {
  if (findings.empty()) return;
  store_->run("BEGIN");
  for (const SweepFinding& finding : findings)
    store_->run(insert_, values_of(question_, finding));
  store_->run("COMMIT");
}

void SweepStore::note_asked(const Asked& options) {
  JsonText json;
  json.open('[');
  for (const auto& [name, value] : options)
    json.open('[').value(name).value(value).close();
  json.close();
  const std::array<StoreValue, 2> values = {"asked", std::move(json).text()};
  store_->run("INSERT OR IGNORE INTO meta VALUES(?, ?)", values);
}

void SweepStore::note(const SweepShard& shard) {
  const std::array<StoreValue, 2> values = {static_cast<std::int64_t>(shard.number),
                                            static_cast<std::int64_t>(shard.of)};
  store_->run("INSERT OR IGNORE INTO shards VALUES(?, ?)", values);
  if (std::ranges::find(shards_, shard) == shards_.end()) shards_.push_back(shard);
}

}  // namespace pipewright::io
