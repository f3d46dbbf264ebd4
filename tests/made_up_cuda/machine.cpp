#include "tests/made_up_cuda/machine.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <cuda_runtime_api.h>

namespace pipewright::tests::made_up_cuda {
namespace {

[[noreturn]] void refuse(const std::string& setting) {
  std::fprintf(stderr, "MADE_UP_CUDA: cannot read \"%s\"\n", setting.c_str());
  std::exit(99);
}

std::int64_t number(const std::string& setting, const std::string& text) {
  char* end = nullptr;
  const std::int64_t value = std::strtoll(text.c_str(), &end, 10);
  const std::string unit = end;
  if (end == text.c_str()) refuse(setting);
  if (unit.empty()) return value;
  if (unit == "MiB") return value << 20;
  if (unit == "GiB") return value << 30;
  refuse(setting);
}

Failure failure(const std::string& setting, const std::string& text) {
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) refuse(setting);
  return {text.substr(0, first), static_cast<long>(number(setting, text.substr(first + 1, second - first - 1))),
          static_cast<int>(number(setting, text.substr(second + 1)))};
}

}  // namespace

Machine machine_of_environment() {
  Machine out;
  out.driver = CUDART_VERSION;
  const char* const settings = std::getenv("MADE_UP_CUDA");
  std::istringstream words(settings == nullptr ? "" : settings);
  for (std::string setting; words >> setting;) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) refuse(setting);
    const std::string key = setting.substr(0, equals), text = setting.substr(equals + 1);
    const auto value = [&] { return number(setting, text); };
    if (key == "gpus")
      out.gpus = static_cast<int>(value());
    else if (key == "sms")
      out.sms = static_cast<int>(value());
    else if (key == "groups")
      out.groups = static_cast<int>(value());
    else if (key == "memory")
      out.memory = value();
    else if (key == "peer")
      out.peer = value() != 0;
    else if (key == "architecture")
      out.architecture = static_cast<int>(value());
    else if (key == "driver")
      out.driver = static_cast<int>(value());
    else if (key == "kernel_ns")
      out.kernel_ns = value();
    else if (key == "copy_up_to")
      out.copy_up_to = value();
    else if (key == "events" && (text == "own" || text == "apart"))
      out.events = text == "own" ? EventsTaken::Own : EventsTaken::Apart;
    else if (key == "without")
      out.without = text;
    else if (key == "fail")
      out.fail = failure(setting, text);
    else if (key == "report")
      out.report = text;
    else
      refuse(setting);
  }
  if (out.gpus < 0 || out.gpus > kMostGpus) refuse("gpus=" + std::to_string(out.gpus));
  return out;
}

}  // namespace pipewright::tests::made_up_cuda
