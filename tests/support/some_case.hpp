// doctest takes a filter that no case passes for a success: a suite that was renamed would be lost without a word.
// With this, included once beside doctest's implementation, such a run fails.
#pragma once

#include <cstdio>

#include <doctest/doctest.h>

namespace pipewright::tests {

inline bool& none_passed_the_filters() {
  static bool none = false;
  return none;
}

struct CasesThatRan : doctest::IReporter {
  explicit CasesThatRan(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& all) override {
    none_passed_the_filters() = all.numTestCasesPassingFilters == 0;
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("cases that ran", 1, CasesThatRan);

// The exit status of the tests that the arguments ask for.
inline int run_cases(int argc, char** argv) {
  const int status = doctest::Context(argc, argv).run();
  if (!none_passed_the_filters()) return status;
  std::fputs("error: no case passes these filters; --list-test-suites and --list-test-cases say what is there\n",
             stderr);
  return 1;
}

}  // namespace pipewright::tests
