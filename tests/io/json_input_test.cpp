// What is wrong with a JSON text or a value in it: place, value and way out, in none of nlohmann-json's words.
#include "io/read/json_input.hpp"

#include <string>

#include <doctest/doctest.h>

#include "tests/support/input_error.hpp"

using namespace pipewright::tests;

namespace {

std::string fault(const std::string& text) {
  const std::string message = error_of([&] { parse_json(text, "x.json", "write it again", 4); });
  CHECK(message.ends_with("; write it again"));
  for (const char* const theirs : {"json.exception", "syntax error", "unexpected", "last read", "parse error"}) {
    CAPTURE(message);
    CHECK(message.find(theirs) == std::string::npos);
  }
  return message.substr(0, message.size() - std::string("; write it again").size());
}

}  // namespace

TEST_CASE("A text that is not JSON is refused at its place, with what is wrong there") {
  CHECK(parse_json("{\"a\": [1, 2.5, \"x\", null, true]}", "x.json").at("a").size() == 5);
  CHECK(fault("{\"a\": 1e999}") == "x.json:1:7: not valid JSON: the number 1e999 is out of range");
  CHECK(fault("{\"a\": 1,\n}") == "x.json:2:1: not valid JSON: a comma stands before \"}\"; take it out");
  CHECK(fault("[1, 2") == "x.json:1:6: not valid JSON: it ends within a value, so the file may be cut off");
  CHECK(fault("") == "x.json:1:1: not valid JSON: it ends within a value, so the file may be cut off");
  CHECK(fault("{\"a\": \"\xff\"}") ==
        "x.json:1:8: not valid JSON: byte 0xff is not UTF-8 text; save the file as UTF-8");
  CHECK(fault("[\"a\nb\"]").starts_with("x.json:1:4: not valid JSON: a text holds a line break"));
  CHECK(fault("[\"a\\qb\"]") ==
        "x.json:1:5: not valid JSON: \"\\q\" is not an escape of JSON; write \\\\ for a backslash");
  CHECK(fault("[\"\\u12x4\"]").starts_with("x.json:1:7: not valid JSON: \"\\u12x\" is not an escape of JSON"));
  CHECK(fault("{\"a\" 1}").starts_with("x.json:1:6: not valid JSON: \"1\" is not expected here; look at the commas"));
  CHECK(fault("{\"a\" \"b\"}").starts_with("x.json:1:8: not valid JSON: \"b\" is not expected here"));
  CHECK(fault("{\"a\": }").starts_with("x.json:1:7: not valid JSON: \"}\" is not expected here"));
  CHECK(fault("[\"\\ud800\"]").find("\"\\ud800\" is half of a character") != std::string::npos);
  CHECK(fault("[\"a\xc3\"]").find("a character of UTF-8 is cut off") != std::string::npos);
  CHECK(fault(std::string("[1]\0 2", 6)) == "x.json:1:4: not valid JSON: a NUL byte stands here");
  CHECK(fault("[" + std::string(400, '9') + "e999]").size() < 120);
  CHECK(fault("{\"a\": 1} 2").find("\"2\" is not expected here") != std::string::npos);
  CHECK(fault("nul").find("it ends within a value") != std::string::npos);
  CHECK(fault("[[[[[]]]]]") == "x.json: nests deeper than 4 levels");
  CHECK(fault(std::string(100'000, '[')) == "x.json: nests deeper than 4 levels");
}

TEST_CASE("A value is named by its path where it is missing or of another kind") {
  const Json json =
      Json::parse(R"({"list": [{"x": 1, "y": "text", "z": 1.5, "big": 18446744073709551615}], "no": null})");
  const JsonValue all(json, "x.json", "write it again");
  const JsonValue first = all.at("list").items().front();
  const std::int64_t x = first.at("x");
  const double z = first.at("z");
  const std::string y = first.at("y");
  CHECK(x == 1);
  CHECK(z == 1.5);
  CHECK(y == "text");
  CHECK_FALSE(all.at("no").number_or_null());
  CHECK(all.has("no"));
  CHECK_FALSE(all.has("yes"));
  CHECK(all.at("list").items().size() == 1);
  CHECK(first.map().size() == 4);
  const auto refused = [](const auto& read) { return error_of([&] { static_cast<void>(read()); }); };
  CHECK(refused([&] { return all.at("yes"); }) == "x.json: yes is missing; write it again");
  CHECK(refused([&] { return first.at("y").number(); }) ==
        "x.json: list[0].y is \"text\", not a number; write it again");
  CHECK(refused([&] { return first.at("z").whole(); }) ==
        "x.json: list[0].z is 1.5, not a whole number; write it again");
  CHECK(refused([&] { return first.at("big").whole(); }).find("not a whole number") != std::string::npos);
  CHECK(refused([&] { return first.at("x").text(); }) == "x.json: list[0].x is 1, not a text; write it again");
  CHECK(refused([&] { return first.at("x").flag(); }).find("is 1, not true or false") != std::string::npos);
  CHECK(refused([&] { return all.items(); }).starts_with("x.json: the document is {"));
  CHECK(refused([&] { return first.at("x").at("deep"); }) == "x.json: list[0].x is 1, not a map; write it again");
}
