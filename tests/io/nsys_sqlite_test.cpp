// The SQLite export of Nsight Systems. The databases are made here, with the documented tables.
#include "io/import/nsys_sqlite.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "io/import/nsys.hpp"
#include "io/read_file.hpp"
#include "io/store.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Process 101, thread 7.
constexpr std::int64_t kThread = 101 * 0x1000000LL + 7;

const std::vector<std::string> kTables = {
    "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE NVTX_EVENTS(start INT NOT NULL, \"end\" INT, eventType INT NOT NULL, text TEXT, textId INT, "
    "globalTid INT)",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT NOT NULL, \"end\" INT NOT NULL, globalTid INT, correlationId "
    "INT, nameId INT)",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT NOT NULL, \"end\" INT NOT NULL, deviceId INT, correlationId "
    "INT, "
    "globalPid INT, demangledName INT, shortName INT)",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT NOT NULL, \"end\" INT NOT NULL, correlationId INT, globalPid "
    "INT)",
    "INSERT INTO StringIds VALUES(1, 'gemm'), (2, 'burn(float *, int)'), (3, 'PP:0B0')"};

// (start, end, name) with the text in the row; 59: push and pop.
std::string range(std::int64_t start, std::int64_t end, const std::string& name, std::int64_t thread = kThread) {
  return "INSERT INTO NVTX_EVENTS VALUES(" + std::to_string(start) + ", " + std::to_string(end) + ", 59, '" + name +
         "', NULL, " + std::to_string(thread) + ")";
}

// A call at `call` that has a kernel run from `start` to `end`.
std::vector<std::string> kernel(int correlation, std::int64_t call, std::int64_t start, std::int64_t end, int name = 1,
                                std::int64_t thread = kThread) {
  const std::string id = std::to_string(correlation), pid = std::to_string(thread / 0x1000000 * 0x1000000);
  return {"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(" + std::to_string(call) + ", " + std::to_string(call + 1) +
              ", " + std::to_string(thread) + ", " + id + ", 1)",
          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(" + std::to_string(start) + ", " + std::to_string(end) +
              ", 0, " + id + ", " + pid + ", " + std::to_string(name) + ", 1)"};
}

using Statements = std::vector<std::string>;

Statements joined(std::vector<Statements> parts) {
  Statements all;
  for (Statements& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string database(const Scratch& scratch, const Statements& statements) {
  const std::string path = scratch.path("run.sqlite");
  std::filesystem::remove(path);
  Store store(path, Store::Access::Write);
  for (const std::string& sql : statements)
    store.run(sql);
  return path;
}

ImportedRun imported(const Statements& statements) {
  const Scratch scratch;
  return import_nsys(database(scratch, joined({kTables, statements})));
}

std::string refusal(const Statements& statements) {
  const Scratch scratch;
  return message_of([&] { import_nsys(database(scratch, statements)); }, scratch.path(""));
}

}  // namespace

TEST_CASE("nsys, SQLite: an action lasts from the first to the last kernel that its thread launched in it") {
  // 0F0 launches at 100 and 190; a kernel launched at 205, behind it, is of no action; one of another thread neither.
  const ImportedRun run =
      imported(joined({{range(90, 200, "PP:0F0"),
                        "INSERT INTO NVTX_EVENTS VALUES(300, 400, 59, NULL, 3, " + std::to_string(kThread) + ")"},
                       kernel(1, 100, 1000, 1500),
                       kernel(2, 190, 1600, 2500, 2),
                       kernel(3, 205, 2600, 9000),
                       kernel(4, 150, 10, 20, 1, kThread + 1),
                       kernel(5, 350, 3000, 3010)}));
  REQUIRE(run.trace);
  CHECK(run.trace->on_device);
  REQUIRE(run.trace->actions.size() == 2);
  const TracedAction& forward = run.trace->actions[0];
  CHECK(forward.kind == 'F');
  CHECK(forward.start == Time{1000});
  CHECK(forward.duration == Time{1500});
  CHECK(forward.process == 101);
  CHECK(run.trace->actions[1].kind == 'B');  // its name is a string's number
  CHECK(run.trace->actions[1].duration == Time{10});
  // By time: gemm 500 + 6400 + 10 + 10 ns in four calls, burn 900 in one.
  REQUIRE(run.kernels.size() == 2);
  CHECK(run.kernels[0].name == "gemm");
  CHECK(run.kernels[0].calls == 4);
  CHECK(run.kernels[0].total == Time{6920});
  CHECK(run.kernels[1].name == "burn(float *, int)");
  CHECK(run.kernels[1].total == Time{900});
  const ImportedRun again = parse_run_file(run_yaml(run), "r.yaml");
  CHECK(again.trace->actions.size() == 2);
  CHECK(again.kernels.size() == 2);
  CHECK(again.source.format == "SQLite export of Nsight Systems");
}

TEST_CASE("nsys, SQLite: copies count, other processes with the same numbers do not, and what is left out is counted") {
  const std::int64_t other = 102 * 0x1000000LL + 7;
  const ImportedRun run = imported(joined(
      {{range(0, 100, "torch:PP:0F0"), range(0, 100, "PP:0F1", other), range(200, 210, "PP:0F2"),
        range(220, 230, "PP:0SEND_F0"), range(240, 250, "my PP:0F3"),
        "INSERT INTO NVTX_EVENTS VALUES(500, NULL, 59, 'PP:0F4', NULL, 7)",
        "INSERT INTO NVTX_EVENTS VALUES(600, 700, 34, 'PP:0F5', NULL, 7)"},  // a mark
       kernel(1, 10, 1000, 1100),
       kernel(1, 10, 5000, 5001, 1, other),
       {"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(20, 21, " + std::to_string(kThread) + ", 2, 1)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(1200, 1300, 2, " + std::to_string(101 * 0x1000000LL) + ")"}}));
  REQUIRE(run.trace);
  REQUIRE(run.trace->actions.size() == 2);
  CHECK(run.trace->actions[0].duration == Time{300});
  CHECK(run.trace->actions[1].duration == Time{1});
  CHECK(run.trace->actions[1].process == 102);
  CHECK(run.trace->other_actions == 1);
  const auto& assumed = run.source.assumed;
  CHECK(std::count(assumed.begin(), assumed.end(), "1 actions that launched nothing are left out") == 1);
  CHECK(std::count(assumed.begin(), assumed.end(), "1 actions without an end are left out") == 1);
}

TEST_CASE("nsys, SQLite: ranges that launched nothing have times of the host; kernels alone are a run, too") {
  const ImportedRun host = imported({range(10, 30, "PP:1F0"), range(40, 45, "PP:1B0")});
  CHECK_FALSE(host.trace->on_device);
  CHECK(host.trace->actions[0].duration == Time{20});
  CHECK(host.kernels.empty());
  const ImportedRun kernels = imported(kernel(1, 10, 100, 150));
  CHECK_FALSE(kernels.trace);
  CHECK(kernels.kernels.size() == 1);
}

TEST_CASE("nsys, SQLite: what is missing or wrong is named with a way out") {
  CHECK(has(refusal({"CREATE TABLE a(b)"}), "has neither a table NVTX_EVENTS nor CUPTI_ACTIVITY_KIND_KERNEL"));
  CHECK(has(refusal(kTables), "has no range such as \"PP:0F3\" and no kernels"));
  CHECK(has(refusal(joined({kTables, {range(30, 10, "PP:0F0")}})), "an action that ends before it starts"));
  CHECK(has(refusal(joined({kTables, {range(-1, 10, "PP:0F0")}})), "NVTX_EVENTS: a start that is no number of nano"));
  CHECK(has(refusal(joined({kTables, kernel(1, 10, 100, 50)})), "1 rows whose start and end are no times"));
  CHECK(has(refusal(joined({kTables, {"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES('soon', 5, 0, 1, 1, 1, 1)"}})),
            "1 rows whose start and end are no times"));
}

TEST_CASE("nsys, SQLite: a database that would have its reader compute for ever is not asked to") {
  // A view that never ends, in place of a table.
  CHECK(
      has(refusal({"CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
                   "i AS start, i AS \"end\", 59 AS eventType, 'PP:0F0' AS text, 7 AS globalTid FROM n"}),
          "has neither a table NVTX_EVENTS"));
  // Columns that are computed as they are read.
  CHECK(
      has(refusal({"CREATE TABLE NVTX_EVENTS(start INT, \"end\" INT AS (length(zeroblob(1000000000))), eventType INT, "
                   "text TEXT, globalTid INT)"}),
          "has neither a table NVTX_EVENTS"));
}

TEST_CASE("nsys, SQLite: a file that is cut off or overwritten is refused or read, and never more than that") {
  const Scratch scratch;
  Statements many = kTables;
  for (int i = 0; i < 200; ++i)
    for (std::string& sql : joined({{range(100 * i, 100 * i + 50, "PP:0F" + std::to_string(i))},
                                    kernel(i, 100 * i + 1, 100 * i, 100 * i + 40)}))
      many.push_back(std::move(sql));
  const std::string bytes = read_file(database(scratch, many));
  const std::string path = scratch.path("broken.sqlite");
  int refused = 0;
  for (std::size_t at = 16; at < bytes.size(); at += 509) {
    std::string broken = bytes;
    broken[at] = static_cast<char>(broken[at] ^ 0xA5);
    if (at % 3 == 0) broken.resize(at);
    std::ofstream(path, std::ios::binary) << broken;
    try {
      import_nsys(path);
    } catch (const InputError& error) {
      CHECK(std::string(error.what()).starts_with(path + ": "));
      ++refused;
    }
  }
  CHECK(refused > 10);
}
