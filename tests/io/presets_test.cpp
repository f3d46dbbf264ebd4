// Presets are read by everybody and checked by nobody: each figure must say where it comes from.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "io/read/read_scenario.hpp"
#include "io/text/names.hpp"

using namespace pipewright::tests;

namespace {

ReadOptions shipped() {
  return {{}, {std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs"}};
}

std::string stem(const std::string& file) {
  return std::filesystem::path(file).stem().string();
}

}  // namespace

TEST_CASE("every shipped device names the source of each of its figures") {
  const auto files = config_files("devices", shipped());
  REQUIRE(files.size() >= 5);
  for (const std::string& file : files) {
    const Device device = read_device(file, shipped());
    CHECK_MESSAGE(device.name == stem(file), file);
    CHECK_MESSAGE(device.sources.contains("memory"), file);
    CHECK_MESSAGE(device.memory_bandwidth.has_value(), file);
    CHECK_MESSAGE(device.sources.contains("memory_bandwidth"), file);
    CHECK_MESSAGE(!device.peak.empty(), file);
    CHECK_MESSAGE(device.power.has_value(), file);
    CHECK_MESSAGE(device.sources.contains("power"), file);
    CHECK_MESSAGE(!device.price_per_hour.has_value(), file << ": a price is the user's");
    for (const auto& [precision, rate] : device.peak)
      CHECK_MESSAGE(device.sources.contains("peak." + std::string(name(precision))), file);
    for (const auto& [kind, which] : kNames<OperatorKind>) {
      const auto& efficiency = device.efficiency[static_cast<std::size_t>(which)];
      if (which > OperatorKind::Memory && !efficiency) continue;  // products in fewer bits, where there are curves
      REQUIRE_MESSAGE(efficiency.has_value(), file << " " << kind);
      CHECK_MESSAGE(!efficiency->source.empty(), file);
      if (efficiency->provenance == Provenance::Assumed) CHECK_MESSAGE(efficiency->band > 0, file << " " << kind);
    }
  }
}

// A data sheet that nobody had open is no evidence: such a source says so.
TEST_CASE("the power of a shipped device is where its source says, or says that no copy was at hand") {
  const auto power_of = [](const std::string& preset) {
    for (const std::string& file : config_files("devices", shipped()))
      if (stem(file) == preset) return read_device(file, shipped()).power->value;
    return 0.0;
  };
  for (const std::string& file : config_files("devices", shipped())) {
    const Device device = read_device(file, shipped());
    const std::string& source = device.sources.at("power");
    const auto has = [&](const char* part) { return source.find(part) != std::string::npos; };
    const bool evidence = has("github.com/") || has("product brief PB-") || has("MLPerf") || source.starts_with("as ");
    CHECK_MESSAGE(evidence != has("not verified against a copy"), file << ": " << source);
    if (!source.starts_with("as ")) continue;
    const std::string other = source.substr(3, source.find(',') - 3);
    CHECK_MESSAGE(power_of(other) == device.power->value, file << ": " << source);
  }
}

// Memory and reserve of a shipped device: measured in a thread that anybody can open, published, or marked as assumed.
TEST_CASE("shipped devices state how their memory and what is taken of it are known") {
  std::map<std::string, Device> devices;
  for (const std::string& file : config_files("devices", shipped()))
    devices[stem(file)] = read_device(file, shipped());
  int measured = 0;
  for (const auto& [preset, device] : devices)
    for (const auto& [key, bytes] : {std::pair{"memory", device.memory}, {"reserve", device.reserve}}) {
      CAPTURE(preset);
      CAPTURE(key);
      const bool program_of_its_own = preset != "xeon-8480-core" && !preset.ends_with("-megatron");
      CHECK((bytes > Bytes{}) == (key == std::string("memory") || program_of_its_own));
      if (bytes == Bytes{}) continue;
      REQUIRE(device.provenances.contains(key));
      const std::string& source = device.sources.at(key);
      const Provenance how = device.provenances.at(key);
      if (how == Provenance::Measured) CHECK(source.find("github.com/") != std::string::npos);
      if (how == Provenance::Assumed) CHECK((source.starts_with("as ") || source.starts_with("assumed: ")));
      measured += how == Provenance::Measured ? 1 : 0;
      if (!source.starts_with("as ")) continue;
      const Device& other = devices.at(source.substr(3, source.find_first_of(",;") - 3));
      CHECK((key == std::string("memory") ? other.memory : other.reserve) == bytes);
    }
  CHECK(measured >= 16);
  const Device& h100 = devices.at("h100-sxm-80g");
  CHECK(h100.memory < Bytes{std::int64_t{81559} << 20});  // what nvidia-smi shows
}

TEST_CASE("every shipped cluster names the source of its bandwidths and of the latencies it states") {
  const auto files = config_files("clusters", shipped());
  REQUIRE(files.size() >= 5);
  for (const std::string& file : files) {
    const Cluster cluster = read_cluster(file, shipped());
    const auto sourced = [&](const std::string& key) { return cluster.sources.contains(key); };
    CHECK_MESSAGE(cluster.name == stem(file), file);
    if (cluster.links.kind != LinkKind::Ideal) CHECK_MESSAGE(sourced("node.links.bandwidth"), file);
    if (cluster.links.latency > Time{}) CHECK_MESSAGE(sourced("node.links.latency"), file);
    if (!cluster.network) continue;
    CHECK_MESSAGE(sourced("network.bandwidth"), file);
    if (cluster.network->latency > Time{}) CHECK_MESSAGE(sourced("network.latency"), file);
  }
}

// [VGG15] table 2 prints 138 million for column D; the exact sum over its shapes is 138 357 544.
// [GPipe19] table 1: N(L) = 50 358 272 L + 131 108 096, which gives its five printed counts; here L = 48.
TEST_CASE("shipped models have the parameters that their papers' shapes give") {
  const auto count = [](const char* name) {
    for (const std::string& file : config_files("models", shipped()))
      if (stem(file) == name) return parameter_count(read_model(file, shipped()));
    return std::int64_t{0};
  };
  CHECK(count("vgg16") == 138'357'544);
  CHECK(count("transformer-48") == std::int64_t{50'358'272} * 48 + 131'108'096);
}

TEST_CASE("every shipped model states where its figures come from") {
  const auto files = config_files("models", shipped());
  REQUIRE(files.size() >= 2);
  for (const std::string& file : files)
    CHECK_MESSAGE(!read_model(file, shipped()).source.empty(), file);
}
