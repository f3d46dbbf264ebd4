#include "core/ending.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <list>
#include <mutex>
#include <utility>

namespace pipewright::core {
namespace {

std::atomic<int> asked{0};

struct Registry {
  std::mutex mutex;
  std::list<const std::function<void()>*> all;
};

// Never destroyed: a signal may come while the program's last objects go.
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

}  // namespace

int asked_to_end() noexcept {
  return asked.load(std::memory_order_relaxed);
}

void ask_to_end(int signal) noexcept {
  asked = signal;
}

std::string signal_name(int signal) {
  constexpr std::array<std::pair<int, const char*>, 4> names = {
      {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGQUIT, "SIGQUIT"}}};
  for (const auto& [number, name] : names)
    if (number == signal) return name;
  return "signal " + std::to_string(signal);
}

std::string interrupted_by() {
  return "interrupted (" + signal_name(asked_to_end()) + ")";
}

void end_if_asked(const std::string& what) {
  if (asked_to_end() != 0) throw Interrupted(what);
}

ClearedAtEnd::ClearedAtEnd(const std::function<void()>& make, std::function<void()> clear) : clear_(std::move(clear)) {
  const std::lock_guard lock(registry().mutex);
  make();
  registry().all.push_front(&clear_);
}

ClearedAtEnd::~ClearedAtEnd() {
  const std::lock_guard lock(registry().mutex);
  registry().all.remove(&clear_);
}

void clear_at_end() noexcept {
  registry().mutex.lock();
  for (const std::function<void()>* const clear : registry().all)
    (*clear)();
}

}  // namespace pipewright::core
