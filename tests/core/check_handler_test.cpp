#include "core/check_handler.hpp"

#include <string>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.hpp"

namespace pipewright::tests {
namespace {

// In a process of its own, as it is for good: 0 where the failed check was an exception that says which.
int status_of_thrown_check() {
  const pid_t child = fork();
  if (child == 0) {
    throw_where_checks_fail();
    try {
      PP_CHECK(1 + 1 == 3);
    } catch (const CheckFailed& failed) {
      _exit(std::string(failed.what()).starts_with("1 + 1 == 3 (") ? 0 : 1);
    }
    _exit(2);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("where it is asked for, a failed check is an exception") {
  CHECK(status_of_thrown_check() == 0);
}

}  // namespace
}  // namespace pipewright::tests
