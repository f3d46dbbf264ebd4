#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tests/support/some_case.hpp"

int main(int argc, char** argv) {
  return pipewright::tests::run_cases(argc, argv);
}
