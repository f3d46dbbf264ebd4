// Real runs on images in IDX, packed or not; on Fashion-MNIST where Debian's package is installed.
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "io/writers/writers.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

const std::string kFashion = "scenarios/learning/fashion.yaml";
const std::string kInstalled = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz";

std::string big_endian(unsigned value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// Image i is bright in row i mod 28; its label is i mod 10.
constexpr unsigned kImages = 40;
std::string images() {
  std::string bytes = big_endian(0x803) + big_endian(kImages) + big_endian(28) + big_endian(28);
  for (unsigned image = 0; image < kImages; ++image)
    for (unsigned pixel = 0; pixel < 28 * 28; ++pixel)
      bytes += static_cast<char>(pixel / 28 == image % 28 ? 255 : pixel % 7);
  return bytes;
}
std::string labels() {
  std::string bytes = big_endian(0x801) + big_endian(kImages);
  for (unsigned image = 0; image < kImages; ++image)
    bytes += static_cast<char>(image % 10);
  return bytes;
}

ProgramRun trained(const std::string& data, const std::string& steps = "2") {
  return run_program({"run", kFashion, "--data", data, "--steps", steps});
}
// "loss 2.28 -> 2.30", without the file's name.
std::string losses_of(const ProgramRun& run) {
  const auto from = run.out.find("loss "), to = run.out.find(" over ");
  REQUIRE(to != std::string::npos);
  return run.out.substr(from, to - from);
}

}  // namespace

TEST_CASE("Images that are packed with gzip are those of the unpacked file") {
  const ScratchFolder folder;
  const std::string plain = folder.path("some-images-idx3-ubyte"), packed = plain + ".gz";
  write_file(plain, images());
  write_file(folder.path("some-labels-idx1-ubyte"), labels());
  write_file(packed, gzip(images()));
  write_file(folder.path("some-labels-idx1-ubyte.gz"), gzip(labels()));
  const ProgramRun a = trained(plain), b = trained(packed), made_up = trained("synthetic");
  CHECK(a.status == 0);
  CHECK(b.status == 0);
  CHECK(losses_of(a) == losses_of(b));
  CHECK(losses_of(a) != losses_of(made_up));
}

TEST_CASE("Images that are cut short, damaged or without labels are refused by name") {
  const ScratchFolder folder;
  const std::string path = folder.path("x-images-idx3-ubyte.gz");
  write_file(path, gzip(images().substr(0, 5000)));
  CHECK(contains(trained(path).err, "x-labels-idx1-ubyte.gz"));
  write_file(folder.path("x-labels-idx1-ubyte.gz"), gzip(labels()));
  CHECK(contains(trained(path).err, "one is cut short"));
  write_file(path, gzip(images()).substr(0, 100));
  CHECK(contains(trained(path).err, "the file is cut off"));
}

TEST_CASE("Fashion-MNIST, where dataset-fashion-mnist is installed: its losses are not those of made-up images") {
  if (!std::filesystem::exists(kInstalled)) {
    MESSAGE("skipped: " << kInstalled << " is not there; apt-get install dataset-fashion-mnist");
    return;
  }
  const ProgramRun run = run_program({"run", kFashion, "--steps", "40"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "train-images-idx3-ubyte.gz"));
  CHECK(losses_of(run) != losses_of(trained("synthetic", "40")));
}
