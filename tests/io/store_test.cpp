// Databases: what is written comes back, one process writes, and what is none is refused with a way out.
#include "io/store/store.hpp"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "io/read/read_file.hpp"
#include "io/read/read_sweep.hpp"
#include "io/store/sweep_store.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/texts.hpp"

namespace pipewright::tests {
namespace {

std::string store_refusal(const std::string& path, Store::Access access) {
  return message_of([&] { Store(path, access); });
}

TEST_CASE("Values come back as they were: whole numbers, reals to the last bit, texts, nothing") {
  const Scratch scratch;
  const std::string path = scratch.path("a.db");
  const std::vector<StoreValue> values = {std::numeric_limits<std::int64_t>::max(), 0.1 + 0.2,
                                          std::string("a\0b'\"", 5), std::monostate{}};
  {
    Store store(path, Store::Access::Write);
    store.run("CREATE TABLE t(a, b, c, d)");
    store.run("INSERT INTO t VALUES(?, ?, ?, ?)", values);
  }
  CHECK(is_store(path));
  std::vector<StoreValue> read;
  Store(path, Store::Access::Read).each("SELECT * FROM t", [&](auto row) { read.assign(row.begin(), row.end()); });
  CHECK(read == values);
}

TEST_CASE("While a process writes a database, no other one reads or writes it") {
  const Scratch scratch;
  const Store writer(scratch.path("a.db"), Store::Access::Write);
  CHECK(
      contains(store_refusal(scratch.path("a.db"), Store::Access::Write), "another process is writing this database"));
}

TEST_CASE("What is not a database is refused before anything is written to it") {
  const Scratch scratch;
  const std::string text = scratch.write("text.db", "no database, but a text that is longer than a header\n");
  for (const auto access : {Store::Access::Read, Store::Access::Write}) {
    CHECK(contains(store_refusal(text, access), "is not an SQLite database; name a file that"));
    CHECK(contains(store_refusal(scratch.path(""), access), "is a folder, not a database; name a file in it"));
    CHECK(contains(store_refusal("/dev/null", access), "is not an ordinary file"));
    CHECK(contains(store_refusal("", access), "needs a name"));
  }
  CHECK(contains(store_refusal(scratch.path("no.db"), Store::Access::Read), "No such file or directory"));
  CHECK(contains(store_refusal(scratch.path("no/no.db"), Store::Access::Write), "cannot open"));
}

TEST_CASE("A name is a name, whatever it looks like") {
  const Scratch scratch;
  { Store store(scratch.path("file:x?mode=memory"), Store::Access::Write); }
  CHECK(contains(store_refusal(scratch.path("x"), Store::Access::Read), "No such file"));
}

TEST_CASE("A database that is not ours is refused without being changed") {
  const Scratch scratch;
  const std::string path = scratch.path("other.db");
  { Store(path, Store::Access::Write).run("CREATE TABLE bookmarks(url)"); }
  const std::string before = read_file(path);
  scratch.write("base.yaml", ScenarioText{}.text());
  const SweepFile file(scratch.write("s.yaml", "sweep: {base: base.yaml, grid: {training.micro_batches: [4, 8]}}\n"),
                       {});
  CHECK(contains(message_of([&] { SweepStore::for_sweep(path, file.question(), identity_of(file, "")); }),
                 "holds no sweep"));
  CHECK(read_file(path) == before);
}

// Of a sweep that has two points.
struct Kept {
  Scratch scratch;
  SweepFile file;
  std::string path = scratch.path("r.db");
  explicit Kept(const std::string& base = ScenarioText{}.text(), const std::string& more = "")
      : file(
            (scratch.write("base.yaml", base),
             scratch.write("s.yaml", "sweep: {base: base.yaml, grid: {training.micro_batches: [4, 8]}" + more + "}\n")),
            {}) {}
  SweepStore open() const { return SweepStore::for_sweep(path, file.question(), identity_of(file, "")); }
  std::string refusal() const {
    return message_of([&] { open(); }, scratch.path(""));
  }
};

SweepRow row_with_figures() {
  SweepRow row;
  row.point = 1, row.outcome = SweepRow::Outcome::DoesNotFit, row.reason = "too large";
  row.step_time = Time{33'000'000}, row.samples_per_s = 1.0 / 3, row.bubble = 3.0 / 11;
  row.tokens_per_s = 0.7, row.mfu = 0.1, row.hfu = 0.2, row.longest_span = 0.3, row.weights_memory = 4096,
  row.goodput = 0.9;
  row.days = 1.0 / 7, row.device_hours = 8, row.cost = 1e6, row.energy_kwh = 2.5;
  row.peak_memory = Bytes{2000}, row.capacity = Bytes{1000}, row.devices = 4, row.plan = "PP4", row.layers = "1 1";
  return row;
}

TEST_CASE("Findings come back as they were, in the order of their points, with the question") {
  const Kept kept;
  const std::vector<SweepFinding> findings = {{0, std::nullopt}, {1, row_with_figures()}};
  {
    SweepStore store = kept.open();
    store.keep({findings[1]});
    store.keep({findings[0]});
    store.note({2, 3});
  }
  SweepStore store = SweepStore::existing(kept.path);
  CHECK(store.findings() == findings);
  CHECK(store.count() == 2);
  CHECK(store.shards() == std::vector<SweepShard>{{2, 3}});
  CHECK(store.question().axes.at(0).texts == std::vector<std::string>{"4", "8"});
  CHECK(store.question().axes.at(0).amounts.at(1) == Magnitude{8});
}

TEST_CASE("Every figure of a row is kept") {
  const SweepRow row = row_with_figures();
  for (const SweepFigureName& each : kSweepFigures) {
    INFO(each.name);
    CHECK((figure(row, each.figure).has_value() || each.figure == SweepFigure::SpeedUp));
  }
}

TEST_CASE("Keys of the grid that are named as a column is, or alike but for case, have columns of their own") {
  const Scratch scratch;
  SweepQuestion question{.file = "s.yaml", .base = "b.yaml", .variants = {"base"}};
  for (const char* key : {"cost", "plan.x", "plan.X", "Point", "cost (grid)"})
    question.axes.push_back({key, {std::string("of ") + key}, {std::nullopt}});
  const std::string path = scratch.path("r.db");
  SweepStore::for_sweep(path, question, {}).keep({{0, std::nullopt}});
  CHECK(SweepStore::existing(path).findings() == std::vector<SweepFinding>{{0, std::nullopt}});
  std::vector<StoreValue> row;
  Store(path, Store::Access::Read)
      .each(R"sql(SELECT "cost (grid)", "plan.x", "plan.X (2)", "Point (grid)", "cost (grid) (2)" FROM points)sql",
            [&](auto values) { row.assign(values.begin(), values.end()); });
  CHECK(row == std::vector<StoreValue>{"of cost", "of plan.x", "of plan.X", "of Point", "of cost (grid)"});
}

TEST_CASE("A point is kept once: a second row of it is an error, not a replacement") {
  const Kept kept;
  SweepStore store = kept.open();
  store.keep({{1, row_with_figures()}});
  CHECK(contains(message_of([&] { store.keep({{1, std::nullopt}}); }), "UNIQUE constraint failed: points.point"));
}

TEST_CASE("The database of another sweep is refused, and what differs is named") {
  const Kept kept;
  kept.open();
  CHECK(kept.refusal() == "");
  ScenarioText slower;
  slower.model = "{layers: [{name: a, forward: 3 ms, backward: 2 ms}, {name: b, forward: 1 ms, backward: 2 ms}]}";
  const auto against = [&](const std::string& base, const std::string& more = "") {
    Kept other(base, more);
    other.path = kept.path;
    return other.refusal();
  };
  CHECK(against("# a comment\n" + ScenarioText{}.text()) == "");
  CHECK(contains(against(slower.text()), "holds the results of another sweep: base: model.layers.0 is"));
  CHECK(contains(against(ScenarioText{}.text(), ", where: plan.stages < 3"),
                 "where: conditions is none there and plan.stages < 3 here"));
  CHECK(contains(against(ScenarioText{}.text(), ", variants: {a: {plan.stages: 1}}"), "variants: names is base there"));
}

TEST_CASE("What is in a file that the grid names is part of the sweep") {
  const auto identity = [](const std::string& memory) {
    const Scratch scratch;
    const auto cluster = [&](const std::string& name, const std::string& bytes) {
      scratch.write(name, "cluster: {node: {devices: 2, device: {memory: " + bytes + "}}}\n");
    };
    cluster("a.yaml", "16 GiB"), cluster("b.yaml", memory);
    scratch.write("base.yaml", ScenarioText{}.text());
    const SweepFile file(scratch.write("s.yaml",
                                       "sweep: {base: base.yaml, grid: {cluster: [./a.yaml, ./b.yaml], "
                                       "training.micro_batches: [2, 4]}}\n"),
                         {});
    return identity_of(file, "");
  };
  CHECK(difference(identity("8 GiB"), identity("8 GiB")) == "");
  CHECK(difference(identity("8 GiB"), identity("9 GiB")) ==
        "grid cluster: ./b.yaml: cluster.node.device.memory is 8 GiB there and 9 GiB here");
}

TEST_CASE("A database that something else has written to is refused, not believed") {
  const auto after = [](const std::string& sql) {
    const Kept kept;
    kept.open().keep({{1, row_with_figures()}});
    { Store(kept.path, Store::Access::Write).run(sql); }
    return message_of([&] { SweepStore::existing(kept.path).findings(); });
  };
  CHECK(after("UPDATE points SET samples_per_s = samples_per_s") == "");
  CHECK(contains(after("UPDATE points SET point = 7"), "point 7 in it is none of the 2 of its sweep"));
  CHECK(contains(after("UPDATE points SET outcome = 'good'"), "outcome \"good\""));
  CHECK(contains(after("UPDATE points SET step_time_ns = 'long'"), "row 1 of it is none"));
  CHECK(contains(after("UPDATE points SET reason = NULL"), "row 1 of it is none"));
  CHECK(contains(after("UPDATE meta SET value = '{}' WHERE key = 'question'"),
                 "the question in it is not a JSON of one"));
  CHECK(
      contains(after("UPDATE meta SET value = x'00ff7b' WHERE key = 'question'"), "the question in it is not a JSON"));
  CHECK(contains(after("UPDATE meta SET value = '{\"file\"' WHERE key = 'question'"),
                 "the question in it is not a JSON"));
  CHECK(contains(after("UPDATE meta SET value = 'x/9' WHERE key = 'schema'"), "is of schema \"x/9\""));
  CHECK(contains(after("INSERT INTO shards VALUES(0, -1)"), "a shard in it is none"));
  CHECK(contains(after("DROP TABLE points"), "no such table: points"));
  CHECK(contains(after("DROP TABLE meta"), "holds no sweep"));
}

}  // namespace
}  // namespace pipewright::tests
