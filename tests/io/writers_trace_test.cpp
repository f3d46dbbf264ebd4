#include <algorithm>
#include <map>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "io/writers/trace_text.hpp"
#include "io/writers/writers.hpp"
#include "tests/support/small_answer.hpp"

namespace pipewright::tests {
namespace {

using nlohmann::json;

struct Slice {
  std::int64_t start, end;
  std::string name;
};

// "33000.125" microseconds -> 33 000 125 ns: exact, through the text.
std::int64_t nanoseconds(const json& number) {
  return std::llround(number.get<double>() * 1000);
}

std::map<std::pair<int, int>, std::vector<Slice>> slices(const json& trace) {
  std::map<std::pair<int, int>, std::vector<Slice>> result;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X")
      result[{event["pid"], event["tid"]}].push_back(
          {nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"]), event["name"]});
  for (auto& [thread, list] : result)
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  return result;
}

// Every case that shapes a trace: messages that take no time, pure latency, a wire, replicas, copies, chunks.
std::vector<std::unique_ptr<SmallAnswer>> answers() {
  const Time tenth{100'000}, two{2'000'000};
  std::vector<std::unique_ptr<SmallAnswer>> list;
  list.push_back(small_answer());
  list.push_back(small_answer({.hop = Time{1'500'000}}));
  list.push_back(small_answer({.hop = Time{1'500'000}, .wire = tenth}));
  list.push_back(small_answer({.schedule = "gpipe", .wire = tenth, .recompute = true}));
  list.push_back(small_answer({.schedule = "interleaved_1f1b", .wire = tenth, .virtual_stages = 2}));
  list.push_back(small_answer({.wire = tenth, .all_reduce = two, .data_parallel = 2, .buckets = 3}));
  list.push_back(small_answer({.wire = tenth, .all_reduce = two, .data_parallel = 2, .gather = two}));
  list.push_back(small_answer({.wire = tenth, .table = two}));
  list.push_back(small_answer(
      {.schedule = "pipedream", .stages = 2, .hop = tenth, .wire = two, .all_reduce = two, .replicas = {3, 1}}));
  return list;
}

std::string unpacked(const std::string& packed) {
  z_stream stream{};
  REQUIRE(inflateInit2(&stream, 15 + 16) == Z_OK);
  std::string text(1 << 22, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  REQUIRE(inflate(&stream, Z_FINISH) == Z_STREAM_END);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

}  // namespace

TEST_CASE("slices of one thread of a trace never overlap") {
  for (const auto& small : answers())
    for (const auto& [thread, list] : slices(json::parse(trace_json(small->answer))))
      for (std::size_t i = 1; i < list.size(); ++i)
        CHECK_MESSAGE(list[i].start >= list[i - 1].end, list[i - 1].name, " and ", list[i].name, " on thread ",
                      thread.second);
}

TEST_CASE("every arrow of a trace has two ends, each inside a slice, the head not before the tail") {
  for (const auto& small : answers()) {
    const json trace = json::parse(trace_json(small->answer));
    const auto by_thread = slices(trace);
    std::map<int, std::vector<json>> arrows;
    for (const auto& event : trace["traceEvents"])
      if (event["ph"] == "s" || event["ph"] == "f") arrows[event["id"]].push_back(event);
    CHECK(!arrows.empty());
    for (auto& [id, ends] : arrows) {
      REQUIRE(ends.size() == 2);
      if (ends[0]["ph"] == "f") std::swap(ends[0], ends[1]);
      CHECK(ends[0]["ph"] == "s");
      CHECK(ends[1]["bp"] == "e");
      CHECK(ends[0]["name"] == ends[1]["name"]);
      CHECK(nanoseconds(ends[0]["ts"]) <= nanoseconds(ends[1]["ts"]));
      for (const auto& end : ends) {
        const auto& list = by_thread.at({end["pid"], end["tid"]});
        const auto at = nanoseconds(end["ts"]);
        CHECK(std::any_of(list.begin(), list.end(), [&](const Slice& s) { return s.start <= at && at < s.end; }));
      }
    }
  }
}

TEST_CASE("gathers have a thread between the all-reduces and the messages, and name their pass") {
  const auto small = small_answer({.stages = 2,
                                   .micro_batches = 2,
                                   .wire = Time{100'000},
                                   .all_reduce = Time{500'000},
                                   .data_parallel = 2,
                                   .gather = Time{700'000}});
  const json trace = json::parse(trace_json(small->answer));
  std::map<int, std::string> threads;
  std::map<std::string, std::string> passes;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "M" && event["name"] == "thread_name" && event["pid"] == trace["traceEvents"][0]["pid"])
      threads[event["tid"]] = event["args"]["name"];
    else if (event["ph"] == "X" && event["cat"] == "all-gather")
      passes[event["name"]] = event["args"]["pass"];
  CHECK(threads.at(1) == "all-reduce");
  CHECK(threads.at(2) == "all-gather");
  CHECK(threads.at(3).starts_with("send"));
  CHECK(passes == std::map<std::string, std::string>{{"0AG0.0", "forward"}, {"1AG0.0", "forward"}});
}

TEST_CASE("a trace names one process per worker with its streams") {
  const json trace = json::parse(trace_json(small_answer({.wire = Time{100'000}})->answer));
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "M" && event["name"] == "process_name")
      processes[event["pid"]] = event["args"]["name"];
    else if (event["ph"] == "M" && event["name"] == "thread_name")
      threads[{event["pid"], event["tid"]}] = event["args"]["name"];
  CHECK(processes == std::map<int, std::string>{{0, "device 0 · stage 0"},
                                                {1, "device 1 · stage 1"},
                                                {2, "device 2 · stage 2"},
                                                {3, "device 3 · stage 3"}});
  CHECK(threads.at({0, 0}) == "compute");
  CHECK(threads.at({0, 2}) == "send");
  CHECK(threads.at({0, 3}) == "recv");
}

TEST_CASE("two answers in one trace: a worker's processes stand together, and no arrow joins the two") {
  const auto fast = small_answer({.wire = Time{100'000}}), slow = small_answer({.wire = Time{333'333}});
  const json trace = json::parse(trace_json(fast->answer, slow->answer));
  std::map<int, std::string> processes;
  std::map<int, int> order;
  std::map<int, std::vector<int>> arrows;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "M" && event["name"] == "process_name")
      processes[event["pid"]] = event["args"]["name"];
    else if (event["ph"] == "M" && event["name"] == "process_sort_index")
      order[event["args"]["sort_index"]] = event["pid"];
    else if (event["ph"] == "s" || event["ph"] == "f")
      arrows[event["id"]].push_back(event["pid"]);
  std::vector<std::string> top_down;
  for (const auto& [index, pid] : order)
    top_down.push_back(processes.at(pid));
  REQUIRE(top_down.size() == 8);
  CHECK(top_down[0] == "predicted: device 0 · stage 0");
  CHECK(top_down[1] == "measured: device 0 · stage 0");
  CHECK(top_down[7] == "measured: device 3 · stage 3");
  CHECK(arrows.size() == fast->answer.timeline.transfers.size() + slow->answer.timeline.transfers.size());
  for (const auto& [id, ends] : arrows) {
    REQUIRE(ends.size() == 2);
    CHECK((ends[0] < 4) == (ends[1] < 4));
  }
}

TEST_CASE("ops of a trace carry PyTorch's names and exact microseconds") {
  // Stage 3 receives micro-batch 0 after three forwards of 1 ms + 333.333 us on the wire: at 3.999999 ms.
  const std::string trace = trace_json(small_answer({.wire = Time{333'333}})->answer);
  CHECK(trace.find(R"("cat":"forward","name":"3F0","pid":3,"tid":0,"ts":3999.999,"dur":1000.000,)") !=
        std::string::npos);
  CHECK(trace.find(R"("cat":"backward","name":"3B0","pid":3,"tid":0,"ts":4999.999,"dur":2000.000,)") !=
        std::string::npos);
}

TEST_CASE("a trace counts memory by category and writes one event per line") {
  const std::string text = trace_json(small_answer()->answer);
  const json trace = json::parse(text);
  std::size_t counters = 0;
  double most = 0;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "C" && event["pid"] == 0)
      ++counters, most = std::max(most, event["args"]["stash"].get<double>());
  CHECK(counters > 8);
  CHECK(most == 4.0);  // four micro-batches in flight on stage 0, 1 GiB each
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  CHECK(lines == trace["traceEvents"].size() + 2);
}

TEST_CASE("figures of a trace are cut out of whole nanoseconds and bytes") {
  const auto text = [](auto quantity) { return std::move(TraceText() << quantity).take(); };
  CHECK(text(Time{33'000'000}) == "33000.000");
  CHECK(text(Time{7}) == "0.007");
  CHECK(text(Time{-1'234'567}) == "-1234.567");
  CHECK(text(Time{kLargest}) == "4611686018427387.904");  // 2^62 ns; a double holds 16 digits of it
  CHECK(text(Bytes{0}) == "0.000000");
  CHECK(text(Bytes{(std::int64_t{1} << 30) + (std::int64_t{1} << 29)}) == "1.500000");
  CHECK(text(Bytes{(std::int64_t{1} << 30) - 1}) == "1.000000");  // 0.9999999990...
  CHECK(text(Bytes{std::int64_t{8} << 20}) == "0.007812");        // 0.0078125: half, to the even digit
  CHECK(text(Bytes{std::int64_t{24} << 20}) == "0.023438");       // 0.0234375: half, to the even digit
  CHECK(text(Bytes{kLargest}) == "4294967296.000000");            // 2^62 B = 2^32 GiB
  CHECK(text(-42) == "-42");
}

TEST_CASE("a large trace comes with a warning and two ways out, a small one or another format without") {
  CHECK(size_warning("a.trace.json", 199'999'999).empty());
  CHECK(size_warning("a.svg", 300'000'000).empty());
  CHECK(size_warning("a.trace.json", 240'000'000) ==
        "a.trace.json is 240 MB: a viewer may refuse it; write .trace.json.gz, or simulate fewer micro-batches");
}

TEST_CASE("a compressed trace unpacks to the trace") {
  const auto small = small_answer();
  const std::string packed = gzip(trace_json(small->answer));
  CHECK(unpacked(packed) == trace_json(small->answer));
  CHECK(packed.substr(4, 4) == std::string(4, '\0'));  // no time in the header
}

TEST_CASE("hostile names leave a trace valid") {
  auto small = small_answer();
  small->scenario->file = "a\"b\\c\n\xff.yaml";
  CHECK(json::parse(trace_json(small->answer))["otherData"]["tool"] == "pipewright");
}

}  // namespace pipewright::tests
