// How SMs are cut into groups, by drivers that are made up.
#include "kernels/sm_choice.hpp"

#include <vector>

#include <doctest/doctest.h>

namespace pipewright::tests {
namespace {

constexpr SmDevice kHopper{.sms = 132, .least = 8, .step = 8, .major = 9};

// A chip whose SMs lie in clusters of these sizes; a group that is not loose lies in one of them, or is made of whole
// pieces of eight.
struct Driver {
  unsigned groups_of_16 = 0, groups_of_8 = 0, loose_groups = 0;
  std::vector<SmCall> calls = {};

  SmAnswer operator()(const SmCall& call) {
    calls.push_back(call);
    const unsigned there = call.loose ? loose_groups : call.each == 8 ? groups_of_8 : groups_of_16;
    return {std::min(call.groups, there), call.each};
  }
};

SmChoice asked_for(unsigned groups, Driver& driver, const SmDevice& device = kHopper) {
  return chosen_groups(device, groups, [&](const SmCall& call) { return driver(call); });
}

TEST_CASE("Eight groups of sixteen are asked for once where the driver gives them") {
  Driver driver{.groups_of_16 = 8};
  const SmChoice choice = asked_for(8, driver);
  CHECK(driver.calls.size() == 1);
  CHECK(choice.call.groups == 8);
  CHECK(choice.call.each == 16);
  CHECK(choice.together == 1);
  CHECK_FALSE(choice.call.loose);
}

TEST_CASE("Where it gives six, sixteen groups of eight are put together by two") {
  Driver driver{.groups_of_16 = 6, .groups_of_8 = 16};
  const SmChoice choice = asked_for(8, driver);
  CHECK(choice.call.groups == 16);
  CHECK(choice.call.each == 8);
  CHECK(choice.together == 2);
}

TEST_CASE("Fifteen groups of eight are too few for that: then SMs that need not lie together") {
  Driver driver{.groups_of_16 = 6, .groups_of_8 = 15, .loose_groups = 8};
  const SmChoice choice = asked_for(8, driver);
  CHECK(choice.call.loose);
  CHECK(choice.call.groups == 8);
  CHECK(choice.call.each == 16);
}

TEST_CASE("Where loose groups are refused, too, smaller ones do; where nothing does, the first answer stands") {
  Driver small{.groups_of_16 = 6, .groups_of_8 = 15};
  CHECK(asked_for(8, small).together == 1);
  CHECK(asked_for(8, small).call.each == 8);
  Driver none{.groups_of_16 = 6, .groups_of_8 = 6};
  CHECK(asked_for(8, none).call.each == 16);
}

TEST_CASE("A driver that does not tell its step is taken to have the architecture's") {
  Driver driver{.groups_of_16 = 8};  // of 64, too
  CHECK(asked_for(2, driver, {.sms = 132, .major = 9}).call.each == 64);
  CHECK(asked_for(2, driver, {.sms = 108, .major = 8}).call.each == 54);
  CHECK(asked_for(8, driver, {.sms = 16, .major = 8}).call.each == 4);
}

}  // namespace
}  // namespace pipewright::tests
