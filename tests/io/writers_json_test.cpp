#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/answers/campaign.hpp"
#include "core/question/memory_anchor.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/writers.hpp"
#include "tests/io/ending_of.hpp"
#include "tests/support/small_answer.hpp"

namespace pipewright::tests {
namespace {

using nlohmann::json;

// Paths of all values: "stages[].busy_s". Lists and objects count by what is in them; null stands for itself.
void collect(const json& value, const std::string& path, std::set<std::string>& paths) {
  if (value.is_object())
    for (const auto& [key, child] : value.items())
      collect(child, path.empty() ? key : path + "." + key, paths);
  else if (value.is_array())
    for (const auto& child : value)
      collect(child, path + "[]", paths);
  else
    paths.insert(path);
}

std::set<std::string> paths_of(const std::string& document) {
  std::set<std::string> paths;
  collect(json::parse(document), "", paths);
  return paths;
}

std::set<std::string> documented_paths() {
  const char* source = std::getenv("PIPEWRIGHT_SOURCE");
  std::ifstream file(std::string(source ? source : ".") + "/docs/reference/result-json.md");
  std::set<std::string> paths;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| `")) paths.insert(line.substr(3, line.find('`', 3) - 3));
  return paths;
}

constexpr BufferedMessage kMessage{
    .end = BufferedMessage::End::Sender, .from = 2, .to = 0, .direction = Direction::Backward, .micro_batch = 5};
constexpr Op kAllReduce{.kind = Kind::AllReduce, .virtual_stage = 1, .micro_batch = 4, .bucket = 3};

std::shared_ptr<const Campaign> whole_training() {
  Campaign campaign{.length = "1M samples", .samples = 1e6, .steps = 1000, .duration = 86400, .devices = 4};
  campaign.days_low = 0.9, campaign.days_high = 1.1, campaign.missing = {"cost: no price"}, campaign.known = {"time"};
  campaign.energy = Energy{1}, campaign.energy_most = Energy{2};
  campaign.goodput = GoodputReport{.formula = 0.9};
  campaign.spread = SpreadReport{.trials = 20, .step_time = Quantiles{}, .memory = Quantiles{}};
  return std::make_shared<const Campaign>(campaign);
}

// Between them the three have every key: links and what is missing, nothing missing, a steady state; peaks of all
// kinds.
std::set<std::string> written_paths() {
  auto full = small_answer();
  Report& report = full->answer.report;
  report.links = {{"node 0 device 0 out", Bytes{800}, Bandwidth{1e9}, 0.5}};
  report.stages[0].memory.owner = report.workers[0].memory.owner = kMessage;
  report.stages[1].memory.owner = report.workers[1].memory.owner = kAllReduce;
  report.stages[0].need.fit = report.workers[0].need.fit = 0.95;
  report.stages[0].need.communicators = report.workers[0].need.communicators = Bytes{1};
  full->scenario->training.framework.correction = std::make_shared<const MemoryCorrection>();
  report.range = SpeedRange{.causes = {RangeCause{}}};
  report.campaign = whole_training();
  full->scenario->cluster.others.emplace_back().nodes = 1;
  ++full->scenario->cluster.nodes;
  full->answer.plan.rebuilt = {0}, full->answer.plan.recompute_modules = {Module::Norm, Module::FeedForward};
  full->answer.plan.expert_parallel = 8, full->answer.plan.expert_capacity = Placed<double>{1.25, {}};
  full->answer.plan.shared_experts_beside.value = true;
  full->answer.plan.kept_for_weights = Placed<double>{.5, {}}, full->answer.plan.barrier.value = Barrier::None;
  for (const ScheduleKey& key : kScheduleKeys)
    full->answer.plan.facts.*key.stated = true, full->answer.plan.*key.asked = Placed<std::int64_t>{2, {}};
  full->answer.plan.slice_lengths.value = SliceLengths::Even;
  full->answer.plan.pairs.value = Pairs::Fused, full->answer.plan.pair_time = Placed<Time>{Time{1}, {}};
  full->answer.plan.delay_wgrad.value = true;
  full->answer.plan.context_parallel = 4, full->answer.plan.context_inner = Placed<std::int64_t>{2, {}};
  full->answer.plan.shard = 1, full->answer.plan.resharding = Resharding{.over = 2, .always = true};
  full->answer.plan.bucket_rule = BucketRule::Megatron;
  full->answer.plan.offload_layers = Placed<std::int64_t>{1, {}};
  full->answer.plan.overlap_param_gather.value = true;
  full->answer.plan.tensor_overlap.value = TensorOverlap::Ring;
  full->answer.plan.tensor_links.value = TensorLinks::Shared;
  full->scenario->training.offload_optimizer.value = 0.5, full->scenario->training.offload_weights.value = true;
  full->scenario->cluster.host_bandwidth = Bandwidth{1};
  full->scenario->training.moments.value = Moments::Bf16;
  full->scenario->training.master_weights.value = MasterWeights::Remainder;
  full->scenario->training.sharding.value = Sharding::PerParameter;
  full->scenario->model.works.emplace_back().frozen = true, full->scenario->model.layers.front().work = 0;
  for (ChunkMemory& chunk : full->answer.memory.chunks)
    chunk.on_host = Bytes{1};
  report.fits = false;
  report.shortfall = {"too large", {"stage 0 needs more"}, {"recompute: full"}};
  full->answer.plan.tensor_parallel = 2;
  std::set<std::string> paths = paths_of(json_report(full->answer, true));
  paths.merge(paths_of(json_report(small_answer()->answer)));
  paths.merge(paths_of(json_report(small_answer({.schedule = "pipedream"})->answer)));
  return paths;
}

}  // namespace

TEST_CASE(
    "every key of the result document is described in docs/reference/result-json.md, and every described key is "
    "written") {
  const std::set<std::string> written = written_paths(), documented = documented_paths();
  REQUIRE(documented.size() > 100);
  for (const auto& path : written)
    CHECK_MESSAGE(documented.contains(path), path, " is written and not documented");
  for (const auto& path : documented)
    CHECK_MESSAGE(written.contains(path), path, " is documented and not written");
}

namespace {

// Paths that a schema allows, as `collect` has them of documents.
void collect_allowed(const json& schema, const std::string& path, std::set<std::string>& paths) {
  if (schema.contains("properties"))
    for (const auto& [key, member] : schema["properties"].items())
      collect_allowed(member, path.empty() ? key : path + "." + key, paths);
  else if (schema.contains("items"))
    collect_allowed(schema["items"], path + "[]", paths);
  else if (schema.contains("anyOf"))
    for (const json& each : schema["anyOf"])
      collect_allowed(each, path, paths);
  else
    paths.insert(path);
}

}  // namespace

TEST_CASE("the schema of the result document has the keys that are documented, and no others") {
  const std::set<std::string> documented = documented_paths();
  std::set<std::string> paths;
  collect_allowed(json::parse(kResultDocument.schema()), "", paths);
  for (const auto& path : documented)
    CHECK_MESSAGE(paths.contains(path), path, " is documented and not in the schema");
  for (const auto& path : paths) {
    // null in place of a map: docs/reference/result-json.md tells it where it describes the map's keys
    const auto below = documented.lower_bound(path + ".");
    const bool map = below != documented.end() && below->starts_with(path + ".");
    CHECK_MESSAGE((documented.contains(path) || map), path, " is in the schema and not documented");
  }
}

namespace {

struct Ship {
  std::string name;
  std::optional<Time> delay;
  Bytes cargo;
};

void write_fleet(JsonFields& fields, const std::vector<Ship>& ships, const Ship* flag) {
  fields.list("ships", ships, [&](const Ship& ship) {
    fields.field("name", ship.name).field("delay_s", ship.delay);
    fields.when(ship.cargo > Bytes{}, [&] { fields.field("cargo_bytes", ship.cargo); });
    fields.word("size", ship.name.size() > 3 ? "long" : "short", {"short", "long"});
  });
  fields.maybe("flag", flag, [&](const Ship& ship) { fields.field("name", ship.name); });
  fields.field("first", [&] { return ships.front().name; });
  fields.field("counts", std::map<std::string, int>{{"of", 2}});
  fields.anything("more", [](JsonText& text) { text.field("x", 0.5); });
}

constexpr JsonDocument kFleet{"fleet/1", [](JsonFields& fields) { write_fleet(fields, {}, nullptr); }};

}  // namespace

TEST_CASE("A document from the statement of its members") {
  const std::vector<Ship> ships = {{"Argo", Time{1'500'000'000}, Bytes{3}}, {"Ra", std::nullopt, {}}};
  const std::string text = kFleet.text([&](JsonFields& fields) { write_fleet(fields, ships, nullptr); });
  CHECK(text.find("\"delay_s\": 1.500000000,") != std::string::npos);
  json document = json::parse(text);
  CHECK(document["tool"]["name"] == "pipewright");
  document.erase("tool");
  CHECK(document == json::parse(R"({"schema": "fleet/1",
    "ships": [{"name": "Argo", "delay_s": 1.5, "cargo_bytes": 3, "size": "long"},
              {"name": "Ra", "delay_s": null, "size": "short"}],
    "flag": null, "first": "Argo", "counts": {"of": 2}, "more": {"x": 0.5}})"));
}

TEST_CASE("Its schema, from the same statement and no ship: objects are closed, what stands in `when` may be absent") {
  const json schema = json::parse(kFleet.schema());
  CHECK(schema["title"] == "fleet/1");
  CHECK(schema["required"] == json::array({"schema", "tool", "ships", "flag", "first", "counts", "more"}));
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["properties"]["tool"]["additionalProperties"] == false);
  CHECK(schema["properties"]["schema"]["enum"] == json::array({"fleet/1"}));
  const json ship = schema["properties"]["ships"]["items"];
  CHECK(ship["required"] == json::array({"name", "delay_s", "size"}));
  CHECK(ship["properties"]["delay_s"]["anyOf"] == json::array({{{"type", "number"}}, {{"type", "null"}}}));
  CHECK(ship["properties"]["cargo_bytes"] == json{{"type", "integer"}});
  CHECK(ship["properties"]["size"]["enum"] == json::array({"short", "long"}));
  CHECK(schema["properties"]["flag"]["anyOf"][0]["required"] == json::array({"name"}));
  CHECK(schema["properties"]["first"] == json{{"type", "string"}});
  CHECK(schema["properties"]["counts"]["additionalProperties"] == json{{"type", "integer"}});
}

TEST_CASE("seconds in the result document are whole nanoseconds with nine decimals") {
  // 1F1B, K = 4, M = 8, f = 1 ms, b = 2 ms: (8 + 4 - 1) * 3 ms = 33 ms, of which 24 ms are busy.
  const std::string document = json_report(small_answer()->answer);
  CHECK(document.find("\"step_time_s\": 0.033000000,") != std::string::npos);
  CHECK(document.find("\"makespan_s\": 0.033000000,") != std::string::npos);
  CHECK(document.find("\"busy_s\": 0.024000000,") != std::string::npos);
  CHECK(document.find("\"cycle_time_s\": null,") != std::string::npos);
}

TEST_CASE("the result document states the answer under the agreed keys") {
  const json document = json::parse(json_report(small_answer()->answer));
  CHECK(document["schema"] == "pipewright.result/1");
  CHECK(document["bubble_fraction"].get<double>() == doctest::Approx(3.0 / 11));
  CHECK(document["samples_per_s"].get<double>() == doctest::Approx(8 / 0.033));
  CHECK(document["workers"].size() == 4);
  CHECK(document["stages"].size() == 4);
  CHECK(document["engine"] == "static order");
  const auto& memory = document["stages"][0]["memory_bytes"];
  std::int64_t sum = 0;
  for (const auto& [key, value] : memory.items())
    if (key != "peak") sum += value.get<std::int64_t>();
  CHECK(sum == memory["peak"].get<std::int64_t>());
  CHECK(document["stages"][0]["in_flight"] == 4);
}

TEST_CASE("the result document says whether an op, a message or an all-reduce made the peak, and which") {
  auto small = small_answer();
  small->answer.report.stages[0].memory.owner = kMessage;
  small->answer.report.stages[1].memory.owner = kAllReduce;
  const json stages = json::parse(json_report(small->answer))["stages"];
  CHECK(stages[0]["peak_owner"] == "2SEND_B5 to 0");
  CHECK(stages[0]["peak_owner_kind"] == "message");
  CHECK(stages[0]["peak_message"] ==
        json{{"end", "sender"}, {"direction", "backward"}, {"from", 2}, {"to", 0}, {"micro_batch", 5}});
  CHECK(stages[0]["peak_all_reduce"].is_null());
  CHECK(stages[1]["peak_owner"] == "1AR4.3");
  CHECK(stages[1]["peak_owner_kind"] == "all-reduce");
  CHECK(stages[1]["peak_all_reduce"] == json{{"virtual_stage", 1}, {"bucket", 3}, {"round", 4}});
  CHECK(stages[1]["peak_message"].is_null());
  // B of stage 3 ends at 6 ms with two forwards stashed on stage 2; the gradient stays until 2B0 has ended.
  CHECK(stages[2]["peak_owner"] == "2RECV_B0");
  CHECK(stages[2]["peak_at_s"] == 0.006);
  const json alone = json::parse(json_report(small_answer({.stages = 1})->answer))["stages"][0];
  CHECK(alone["peak_owner"] == "0F0");  // nothing comes in or goes out
  CHECK(alone["peak_owner_kind"] == "op");
  CHECK(alone["peak_message"].is_null());
  CHECK(alone["peak_all_reduce"].is_null());
}

TEST_CASE("an asynchronous schedule has a cycle time") {
  // One more micro-batch every f + b = 3 ms.
  const json document = json::parse(json_report(small_answer({.schedule = "pipedream"})->answer));
  CHECK(document["cycle_time_s"].get<double>() == doctest::Approx(0.003));
  CHECK(document["steady_state"]["duration_s"].get<double>() == doctest::Approx(0.003));
}

TEST_CASE("the document for a plan that does not fit says so under the same schema") {
  const Infeasible why{"stage 0 needs 17.2 GiB of 16 GiB", {"a"}, {"b", "c"}, true, {"be careful"}};
  CHECK(infeasible_text(why) ==
        "infeasible: stage 0 needs 17.2 GiB of 16 GiB\n  a\nwhat would make it fit:\n  b\n  c\nwarning: be careful\n");
  const json document = json::parse(json_infeasible(why));
  CHECK(document["warnings"] == json::array({"be careful"}));
  CHECK(document["schema"] == "pipewright.result/1");
  CHECK(document["fits"] == false);
  CHECK(document["shortfall"]["remedies"].size() == 2);
  for (const auto& path : paths_of(document.dump()))
    CHECK_MESSAGE(documented_paths().contains(path), path);
}

TEST_CASE("names with quotes, control characters and broken UTF-8 leave the result document valid") {
  auto small = small_answer();
  small->scenario->name = "a \"quoted\" \\ name\n\x01 \xff \xe2\x82 \xe2\x82\xac";
  const json document = json::parse(json_report(small->answer));
  CHECK(document["scenario"]["name"] ==
        "a \"quoted\" \\ name\n\x01 \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd \xe2\x82\xac");
}

TEST_CASE("the same answer gives the same bytes in every format") {
  const auto first = small_answer({.wire = Time{100'000}, .recompute = true});
  const auto second = small_answer({.wire = Time{100'000}, .recompute = true});
  for (const Writer& writer : writers())
    CHECK_MESSAGE(writer.write(first->answer, "x") == writer.write(second->answer, "x"), writer.ending);
}

TEST_CASE("the longest matching ending chooses the format") {
  CHECK(ending_of("out/x.trace.json.gz") == ".trace.json.gz");
  CHECK(ending_of("x.trace.json") == ".trace.json");
  CHECK(ending_of("x.json") == ".json");
  CHECK(ending_of("x.svg") == ".svg");
  CHECK(ending_of("x.txt") == "");
  CHECK(ending_of("json") == "");
}

}  // namespace pipewright::tests
