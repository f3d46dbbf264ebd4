// Results of a study read back as they were written.
#include "io/study_record.hpp"

#include <doctest/doctest.h>

#include "tests/support/input_error.hpp"

using namespace pipewright;

TEST_CASE("A record of a study reads back as it was written") {
  StudyRecord record{
      .part = 3, .name = "pipeline-k4", .attempt = 2, .status = "withheld", .reason = "p95/p5 \"1.2\"\n"};
  record.dry_run = true, record.settings = "5f0c";
  record.words = {{"schedule", "1f1b"}}, record.figures = {{"measured_s", 0.1}, {"error", -1.0 / 3}};
  record.lists = {{"timed_s", {0.1, 0.2}}, {"none", {}}};
  const std::string text = study_record_json(record);
  CHECK(parse_study_record(text, "r.json") == record);
  CHECK(study_record_json(parse_study_record(text, "r.json")) == text);
}

TEST_CASE("A record that is cut short or of another kind is refused with its file") {
  const std::string text = study_record_json({.part = 1, .name = "device"});
  CHECK(error_of([&] { parse_study_record(text.substr(0, text.size() / 2), "cut.json"); }).starts_with("cut.json:"));
  CHECK(error_of([&] { parse_study_record("{\"schema\": \"pipewright.study/1\"}", "other.json"); }) ==
        "other.json: is not a pipewright.study-record/1 document; it is not a result of `pipewright accuracy`");
  CHECK(error_of([&] { parse_study_record("[]", "list.json"); }).starts_with("list.json: is not a "));
}

TEST_CASE("What a study was asked has a hash that every value counts to") {
  const StudySettings settings{{"backend", "cpu"}, {"dry_run", "true"}};
  CHECK(parse_study_settings(study_settings_json(settings, true), "study.json") == settings);
  CHECK(study_hash(settings) == study_hash(parse_study_settings(study_settings_json(settings, true), "study.json")));
  CHECK(study_hash(settings) != study_hash({{"backend", "cuda"}, {"dry_run", "true"}}));
  // A name's end is no part of a value.
  CHECK(study_hash({{"a", "b\"c"}}) != study_hash({{"a\"b", "c"}}));
}
