// Every file that ships in scenarios/ is a promise: it reads without a complaint, and where it stands for a published
// number it gives that number, through the binary, as a user would ask for it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

std::filesystem::path source_root() {
  return source_folder();
}

bool is_sweep(const std::filesystem::path& file) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);)
    if (line == "sweep:") return true;
  return false;
}

std::vector<std::filesystem::path> shipped(bool sweeps) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_root() / "scenarios"))
    if (entry.path().extension() == ".yaml" && is_sweep(entry.path()) == sweeps) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::filesystem::path> scenarios() {
  return shipped(false);
}

}  // namespace

TEST_CASE("every shipped scenario passes check" * doctest::test_suite("whole searches")) {
  REQUIRE(scenarios().size() >= 15);
  for (const auto& file : scenarios()) {
    const ProgramRun run = run_program({"check", file});
    CHECK_MESSAGE(run.status == 0, file.string(), ":\n", run.out, run.err);
  }
}

TEST_CASE("every shipped scenario fits its cluster and gives an answer" * doctest::test_suite("whole searches")) {
  for (const auto& file : scenarios()) {
    const ScratchFolder scratch;
    std::string priced = file;
    const ProgramRun checked = run_program({"check", file});
    if ((checked.out + checked.err).find("pipewright plan") != std::string::npos) {  // fields left open
      priced = scratch.path("plan.yaml");
      const ProgramRun planned = run_program({"plan", file, "--top", "1", "--gap", "10%", "-o", priced});
      REQUIRE_MESSAGE(planned.status == 0, file.string(), ":\n", planned.err);
    }
    const ProgramRun run = run_program({"simulate", "--json", priced});
    REQUIRE_MESSAGE(run.status == 0, file.string());
    const auto answer = nlohmann::json::parse(run.out);
    CHECK_MESSAGE(answer.at("schema") == "pipewright.result/1", file.string());
    CHECK_MESSAGE(answer.at("step_time_s").get<double>() > 0, file.string());
    const double bubble = answer.at("bubble_fraction").get<double>();
    CHECK_MESSAGE((bubble >= 0 && bubble < 1), file.string(), ": bubble ", bubble);
  }
}

TEST_CASE("every shipped sweep has figures in all its rows" * doctest::test_suite("whole searches")) {
  REQUIRE(shipped(true).size() >= 2);
  for (const auto& file : shipped(true)) {
    std::vector<std::string> words = {"sweep", "--json", "--time-limit", "10min", file};
    if (file.filename() == "replan.yaml")  // of all plans it would take a minute
      words.insert(words.end(), {"--set", "plan.stages=2", "--set", "plan.tensor_parallel=8"});
    const ProgramRun run = run_program(words);
    REQUIRE_MESSAGE(run.status == 0, file.string());
    const auto document = nlohmann::json::parse(run.out);
    for (const auto& row : document.at("rows"))
      CHECK_MESSAGE(row.at("step_time_s").get<double>() > 0, file.string());
  }
}

// [ZeroBubble23] table 5, column 1F1B: rates that the authors computed from the stage times of their table 9, printed
// to four decimals, hence half a unit of the last one.
TEST_CASE("1F1B gives the zero-bubble paper's bubble rates at its four settings") {
  struct Row {
    const char* file;
    double published;
  };
  for (const auto& [file, published] : {Row{"1.5b-p8.yaml", 0.2431}, Row{"6.2b-p8.yaml", 0.2347},
                                        Row{"14.6b-p16.yaml", 0.2552}, Row{"28.3b-p32.yaml", 0.2646}}) {
    const ProgramRun run = run_program({"simulate", "--json", source_root() / "scenarios/zero_bubble" / file});
    REQUIRE_MESSAGE(run.status == 0, file);
    const double rate = nlohmann::json::parse(run.out).at("bubble_fraction_span").get<double>();
    CHECK_MESSAGE(std::abs(rate - published) < 5e-5, file, ": ", rate, " for the published ", published);
  }
}

// Warm-up K - 1 exposes every hop; docs/how-it-works/model.md derives the cycle f + b + 2 (K-1) c / K. f = 1 ms, b = 2
// ms, c = 0.3 ms, K = 8, M = 64: 1F1B's growth from one group of K to the next is 8 * 3 ms + 14 * 0.3 ms = 28.2 ms. Its
// last hops are part of fill and drain: 250.2 ms in all. GPipe and eager 1F1B pay 2 (K-1) c once: 71 * 3 ms + 4.2 ms.
TEST_CASE("1F1B pays for every hop, eager 1F1B and GPipe only at fill and drain") {
  struct Row {
    const char* file;
    double seconds;
  };
  for (const auto& [file, seconds] :
       {Row{"hops-1f1b.yaml", 0.2502}, Row{"hops-eager.yaml", 0.2172}, Row{"hops-gpipe.yaml", 0.2172}}) {
    const ProgramRun run = run_program({"simulate", "--json", source_root() / "scenarios/what_if" / file});
    REQUIRE_MESSAGE(run.status == 0, file);
    CHECK_MESSAGE(nlohmann::json::parse(run.out).at("step_time_s").get<double>() == seconds, file);
  }
}

// docs/how-it-works/model.md, "The quickstart by hand": 11 (f + b) + 16 c.
TEST_CASE("the quickstart takes the 34.6 ms that the documentation derives") {
  const ProgramRun run = run_program({"simulate", "--json", source_root() / "scenarios/quickstart.yaml"});
  REQUIRE(run.status == 0);
  const auto answer = nlohmann::json::parse(run.out);
  CHECK(answer.at("step_time_s").get<double>() == 0.0346);
  CHECK(answer.at("bubble_fraction").get<double>() == doctest::Approx(1 - 24.0 / 34.6));
}
