// PyTorch's schedule CSV: what is read, and the one message of every bad file.
#include "io/import/schedule_csv.hpp"

#include <array>

#include <doctest/doctest.h>

#include "io/writers/writers.hpp"
#include "tests/io/ending_of.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/texts.hpp"

using namespace pipewright::tests;

namespace {

std::string csv_error(const std::string& text) {
  return message_of([&] { parse_schedule_csv(text, "my.csv"); });
}
}  // namespace

TEST_CASE("A file is read as csv readers do, idle cells, quotes, a byte order mark and CRLF included") {
  const Scratch scratch;
  const GivenSchedule given = read_schedule_csv(scratch.write("my.csv",
                                                              "\xEF\xBB\xBF"
                                                              "0F0,,\"0F1\", 0B0 ,0B1\r\n,1F0,1B0,1F1,1B1,,\r\n\r\n"));
  CHECK(given.stages == 2);
  CHECK(given.virtual_stages == 1);
  CHECK(given.micro_batches == 2);
  CHECK(given.compute[0].size() == 4);
  CHECK((given.compute[1].front() == Op{Kind::F, 1, 0, 0}));
  CHECK((given.place(1, 0) == Place{scratch.path("my.csv"), 2, 2}));
}

// PyTorch's B is the whole backward, I and W are its halves.
TEST_CASE("B, I and W are the whole backward and its two halves") {
  const GivenSchedule given = parse_schedule_csv("0F0,0B0,0F1,0I1,0W1\n", "my.csv");
  const std::vector<Op> expected = {
      {Kind::F, 0, 0, 0}, {Kind::BW, 0, 0, 0}, {Kind::F, 0, 1, 0}, {Kind::B, 0, 1, 0}, {Kind::W, 0, 1, 0}};
  CHECK(given.compute.front() == expected);
}

TEST_CASE("Messages and sharding are counted and left out, overlapped cells run one after the other") {
  const GivenSchedule given = parse_schedule_csv(
      "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
      "1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1\n",
      "my.csv");
  CHECK(given.derived == 11);
  CHECK(given.overlapped() == 1);
  CHECK(label(given.compute[1][1]) == "1F1");
  CHECK(label(given.compute[1][2]) == "1B0");
}

TEST_CASE("Stages lie in a loop or to and fro, which is read off the rows") {
  CHECK(parse_schedule_csv("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n", "x").chunk_order == ChunkOrder::Loop);
  CHECK(parse_schedule_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "x").chunk_order == ChunkOrder::V);
  holds(csv_error("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n"), "my.csv: stages 0, 1, ... lie on ranks 0 0 1 1; these orders");
}

TEST_CASE("A wrong cell is named with its line and column") {
  holds(csv_error("0F0,0X0\n"), "my.csv:1:5: \"0X0\" is not an action; write <stage><action><micro-batch>, e.g. 0F3");
  holds(csv_error("0F0,0B\n"), "my.csv:1:5: \"0B\" names no micro-batch");
  holds(csv_error("0F0,F0,0f0,0F0x,-1F0\n"), "my.csv:1:5: \"F0\" is not an action");
  CHECK(csv_error("0F0,F0,0f0,0F0x,-1F0\n").ends_with("REDUCE_GRAD; 3 more cells are wrong, too"));
  CHECK(csv_error("0F0,F0,0f0\n\n").ends_with("REDUCE_GRAD; another cell is wrong, too"));
  CHECK(csv_error("0F0,F0,0f0\n").find('\n') == std::string::npos);
  holds(csv_error("0F0,(0F1;0B0)OVERLAP\n"), "my.csv:1:5: \"(0F1;0B0)OVERLAP\" is not an overlap");
  holds(csv_error("0F0,(0F1;0Z0)OVERLAP_F_B\n"), "\"0Z0\" in \"(0F1;0Z0)OVERLAP_F_B\" is not an action");
  holds(csv_error("0F0,\"0B0\n"), "my.csv:1:5: a quoted cell has no end");
  holds(csv_error("65535F0\n"), "stages are numbered from 0 to 65534");
  holds(csv_error("0F99999999999999999999\n"),
        "is of micro-batch 99999999999999999999; they are numbered from 0 to 16777215");
  const std::string table = csv_error("variant,plan.stages,outcome\nbase,4,fits\n");
  holds(table, "my.csv:1:1: is a table of results, whose first column is \"variant\", not a schedule");
  CHECK(table.find('\n') == std::string::npos);
  holds(csv_error("worker,copy,stage\n0,0,0\n"), "whose first column is \"worker\", not a schedule");
}

TEST_CASE("A file that is not a whole schedule says what is missing") {
  holds(csv_error(""), "my.csv: holds no forward and no backward");
  holds(csv_error("\n\n"), "my.csv: holds no forward and no backward");
  holds(csv_error("0F0,0B0\n\n1F0,1B0\n"), "my.csv:2:1: rank 1 runs nothing");
  holds(csv_error("0F0,0B0\n2F0,2B0\n"), "my.csv: stage 1 never runs, but stage 2 does (my.csv:2:1: 2F0)");
  holds(csv_error("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"), "my.csv:1:1: 0B1 is missing on rank 0");
  holds(csv_error("0F0,0I0\n"), "my.csv:1:1: 0W0 is missing on rank 0");
  holds(csv_error("0F0,0B0,0F2,0B2\n"),
        "my.csv:1:1: 0F1 is missing on rank 0, but micro-batch 2 runs (my.csv:1:9: 0F2)");
  holds(csv_error("0F0,0F9999999,0B0\n"), "0F1 is missing on rank 0, but micro-batch 9999999 runs");
}

TEST_CASE("An action stands in the file once, on the rank of its stage, after what it needs") {
  holds(csv_error("0F0,0B0,0F0\n"), "my.csv:1:9: 0F0 stands in the file twice, first at line 1, column 1");
  holds(csv_error("0F0,0B0,0W0\n"), "my.csv:1:9: 0W0 is part of a backward that 0B0 does as a whole");
  holds(csv_error("0F0,0B0,1B0\n1F0\n"), "my.csv:1:9: 1B0 runs on rank 0, but stage 1 lies on rank 1");
  holds(csv_error("0B0,0F0\n"), "my.csv:1:1: 0B0 comes before 0F0 of its own rank");
  holds(csv_error("0F0,0W0,0I0\n"), "my.csv:1:5: 0W0 comes before 0I0 of its own rank");
  holds(csv_error("0F0,0B0\n1F0,1B0,2F0,2B0\n"), "my.csv:2:1: rank 1 runs 2 stages, rank 0 runs 1");
}

TEST_CASE("A deadlock names who waits for whom, and where") {
  // Rank 0 wants the gradient of micro-batch 0 before it sends micro-batch 1; rank 1 wants both first.
  CHECK(csv_error("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n") ==
        "my.csv:1:5: deadlock: 0B0 on rank 0 waits for 1B0, which rank 1 runs (2:9) after 1F1 (2:5); 1F1 on rank 1 "
        "waits for 0F1, which rank 0 runs (1:9) after 0B0 (1:5); change the order on one of these ranks");
  // Three ranks in a circle are named one after the other, and the circle begins on it.
  holds(csv_error("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n"), "deadlock: ");
}

TEST_CASE("A row may have a million columns") {
  std::string text;
  for (int m = 0; m < 500'000; ++m)
    text += "0F" + std::to_string(m) + ",0B" + std::to_string(m) + ",";
  const GivenSchedule given = parse_schedule_csv(text, "my.csv");
  CHECK(given.micro_batches == 500'000);
  CHECK(given.compute.front().size() == 1'000'000);
}

TEST_CASE("A file called schedule.csv or x.schedule.csv is a schedule, every other csv a table") {
  for (const char* name : {"schedule.csv", "out/schedule.csv", "a.schedule.csv", "out/a.schedule.csv"})
    CHECK(ending_of(name) == ".schedule.csv");
  CHECK(ending_of("a.comms.schedule.csv") == ".comms.schedule.csv");
  for (const char* name : {"my-schedule.csv", "a.csv", "schedule.csv.csv", "reschedule.csv"})
    CHECK(ending_of(name) == ".csv");
}

TEST_CASE("A scenario names the file relative to itself, and takes ranks and stages from it") {
  const Scratch scratch;
  scratch.write("s/my.csv", "0F0,0B0\n1F0,1B0\n");
  const auto read = [&](const std::string& plan) {
    return read_scenario(scratch.write(
        "s/x.yaml", ScenarioText{.training = "{micro_batch_size: 1, micro_batches: 1}", .plan = plan}.text()));
  };
  const Scenario scenario = read("{schedule: {file: my.csv}}");
  CHECK(scenario.plan.stages.value == 2);
  CHECK(scenario.plan.given->file == scratch.path("s/my.csv"));
  holds(resolved_yaml(scenario), "schedule: {file: my.csv}");
  holds(message_of([&] { read("{schedule: file}"); }), "plan.schedule: \"file\" names no file");
  holds(message_of([&] { read("{schedule: {files: my.csv}}"); }), "did you mean \"file\"");
  holds(message_of([&] { read("{schedule: {file: absent.csv}}"); }), "absent.csv: cannot be read");
}

TEST_CASE("Two directions are read from two sets of stages, and what does not fit them is named in the file's words") {
  const std::string down = "0F0,3F1,3B1,0B0\n1F0,2F1,2B1,1B0\n";  // K = 2: stages 0 and 1 down, 2 and 3 up
  const GivenSchedule given = parse_schedule_csv(down, "x");
  CHECK(given.chunk_order == ChunkOrder::BothWays);
  CHECK(given.stages == 2);
  CHECK(given.virtual_stages == 1);
  CHECK(given.micro_batches == 2);
  CHECK(given.compute[0][1] == Op{Kind::F, 1, 1});  // stage 3 of the file
  const std::string in_turns =                      // 0 and 2 down, 1 and 3 up, as Chimera has them
      "0F0,3F1,3B1,0B0,0F2,3F3,3B3,0B2\n2F1,1F0,1B0,2B1,2F3,1F2,1B2,2B3\n";
  const GivenSchedule chimera = parse_schedule_csv(in_turns, "x");
  CHECK(chimera.chunk_order == ChunkOrder::InTurns);
  CHECK(chimera.micro_batches == 4);
  CHECK(chimera.compute[1][0] == Op{Kind::F, 0, 1});
  holds(csv_error("0F0,3F1,3B1\n1F0,2F1,2B1,1B0\n"), "0B0 is missing on rank 0");
  holds(csv_error("0F0,3F1,0B0\n1F0,2F1,2B1,1B0\n"), "3B1 is missing on rank 0");
  holds(csv_error("0F0,5F1,5B1,0B0\n1F0,4F1,4B1,1B0\n2F0,3F1,3B1,2B0\n"),
        "has two directions on 3 ranks; their number must be even");
  holds(csv_error("0F0,3F2,3B2,0B0\n1F0,2F2,2B2,1B0\n"), "micro-batch 1 never runs, but micro-batch 2 does");
}

TEST_CASE("Micro-batches may be dealt to pipelines by a list, and to more than two pipelines") {
  const GivenSchedule first_up = parse_schedule_csv("3F0,0F1,0B1,3B0\n2F0,1F1,1B1,2B0\n", "x");
  CHECK(first_up.chunk_order == ChunkOrder::Listed);
  CHECK(first_up.compute[0][0] == Op{Kind::F, 1, 0});
  CHECK(first_up.seating().position_of(0, 0) == 1);
  CHECK(first_up.seating().position_of(0, 1) == 0);
  // Four pipelines of four stages each, micro-batch i through the i-th: down from ranks 0 and 2, up from 3 and 1.
  std::string four;
  const std::vector<std::vector<int>> ranks = {{0, 1, 2, 3}, {2, 3, 0, 1}, {3, 2, 1, 0}, {1, 0, 3, 2}};
  std::array<std::string, 4> rows;
  for (const bool forward : {true, false})
    for (int step = 0; step < 4; ++step)
      for (int pipeline = 0; pipeline < 4; ++pipeline) {
        const int v = forward ? step : 3 - step;
        std::string& row = rows[at(ranks[at(pipeline)][at(v)])];
        row += (row.empty() ? "" : ",") + std::to_string(4 * pipeline + v) + (forward ? "F" : "B") +
               std::to_string(pipeline);
      }
  for (const std::string& row : rows)
    four += row + "\n";
  const GivenSchedule given = parse_schedule_csv(four, "x");
  CHECK(given.chunk_order == ChunkOrder::InTurns);
  CHECK(given.pipelines == 4);
  CHECK(given.stages == 4);
  CHECK(given.virtual_stages == 1);
  // Through two of them at once.
  const std::size_t place = four.find("4F1");
  holds(csv_error(four.replace(place, 3, "4F0")),
        "4F0 is of pipeline 1, but micro-batch 0 runs through pipeline 0, whose stages are 0 to 3");
}
