#include "core/question/profile.hpp"

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "io/read/read_scenario.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

MachineProfile example_profile() {
  MachineProfile profile;
  profile.name = "here", profile.date = "2026-11-21", profile.backend = "cpu";
  profile.machine = {"A processor: with a colon", "cpu (x86-64-v3)", 2, "0.1.0"};
  profile.active = 2;
  profile.layers = {{"linear 4 -> 2 bias", 3, Time{123'456}, Time{1}, Time{77}, 0.125, 400},
                    {"relu 4 -> 4", 3, Time{9}, Time{8}, Time{0}, 0, 400},
                    {"relu 4 -> 4", 3, Time{7}, Time{6}, Time{0}, 0, 100, 1}};
  profile.all_reduces = {{2, {50'000, 0.25}}};
  profile.probe = Time{20'123};
  profile.op_overhead = Time{812};
  profile.send = {10.5, 0.0625}, profile.first_read = {0, 0.25}, profile.handoff = Time{150};
  profile.updates = {{Optimizer::Sgd, {100, 0.5}}, {Optimizer::Adam, {0, 2.5}}};
  profile.common_error = 0.01, profile.independent_error = 0.04;
  profile.source = "measured on a machine";
  return profile;
}

std::string written_profile(const std::string& text) {
  static const Scratch folder;
  return folder.write("profile_test.yaml", text);
}

}  // namespace

TEST_CASE("A profile that is written and read again is the same profile") {
  const std::string text = profile_yaml(example_profile());
  const MachineProfile read = read_profile(written_profile(text));
  CHECK(profile_yaml(read) == text);
  CHECK(read.machine == example_profile().machine);
  CHECK(read.send == example_profile().send);
  REQUIRE(read.layers.size() == 3);
  CHECK(read.layers[0].forward == Time{123'456});
  CHECK(find_times(read, "relu 4 -> 4", 3) == &read.layers[1]);
  CHECK(find_times(read, "relu 4 -> 4", 4) == nullptr);
  CHECK(find_times(read, "relu 4 -> 4", 3, 1) == &read.layers[2]);
  CHECK(loads_of(read) == std::vector<int>{1});
  REQUIRE(find_all_reduce(read, 2) != nullptr);
  CHECK(*find_all_reduce(read, 2) == LinearTime{50'000, 0.25});
  CHECK(find_all_reduce(read, 3) == nullptr);
  CHECK(read.probe == Time{20'123});
}

TEST_CASE("Profiles of another version, with a layer twice or a negative time are refused with their place") {
  std::string text = profile_yaml(example_profile());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const auto at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return written_profile(changed.replace(at, from.size(), to));
  };
  CHECK_THROWS_WITH_AS(read_profile(with("version: 3", "version: 2")), doctest::Contains("calibrate again"),
                       InputError);
  CHECK_THROWS_WITH_AS(read_profile(with("relu 4 -> 4", "linear 4 -> 2 bias")), doctest::Contains("one layer twice"),
                       InputError);
  CHECK_THROWS_WITH_AS(read_profile(with("active: 2", "active: 0")), doctest::Contains("profile_test.yaml:"),
                       InputError);
  CHECK_THROWS_AS(read_profile("./no-such-profile.yaml"), InputError);
}
