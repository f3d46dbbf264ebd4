#include "runtime/rank_home.hpp"

#include <array>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "runtime/measurement.hpp"

namespace pipewright::runtime {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Home home() {
  Home here;
  here.boot = first_line("/proc/sys/kernel/random/boot_id");
  std::array<char, 64> link{};
  if (readlink("/proc/self/ns/pid", link.data(), link.size() - 1) > 0) here.processes = here.boot + link.data();
  here.process = getpid();
  here.cores = allowed_cores();
  return here;
}

Blob bytes_of(const Home& home) {
  return BytesOut().put(home.boot).put(home.processes).put(home.process).put(home.cores).bytes();
}
Home home_of(BytesIn in) {
  Home home;
  home.boot = in.text(), home.processes = in.text(), home.process = in.get<std::int64_t>(), home.cores = in.list<int>();
  return home;
}

bool process_is_gone(const Home& there, const Home& here) {
  if (there.processes.empty() || there.processes != here.processes) return false;
  const std::string stat = first_line(fmt::format("/proc/{}/stat", there.process));
  const auto name_ends = stat.rfind(") ");
  return name_ends == std::string::npos || stat.substr(name_ends + 2, 1) == "Z";
}

}  // namespace pipewright::runtime
