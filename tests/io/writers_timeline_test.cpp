#include <doctest/doctest.h>

#include "io/writers/writers.hpp"
#include "tests/support/small_answer.hpp"

namespace pipewright {

TEST_CASE("1F1B of four stages and eight micro-batches is drawn exactly, one character per millisecond") {
  const auto small = small_answer();
  const std::string text = text_timeline(small->answer, 100);
  CHECK(text.starts_with("  stage 0 ▕0123......aa4bb5cc6dd7ee.ff.gg.hh▏ busy 73 %\n"
                         "  stage 1 ▕.012....aa3bb4cc5dd6ee7ff.gg.hh..▏ busy 73 %\n"
                         "  stage 2 ▕..01..aa2bb3cc4dd5ee6ff7gg.hh....▏ busy 73 %\n"
                         "  stage 3 ▕...0aa1bb2cc3dd4ee5ff6gg7hh......▏ busy 73 %\n"));
}

}  // namespace pipewright
