// Names that would be more than text, in every format that holds names.
#include "io/text/quote.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <expat.h>
#include <nlohmann/json.hpp>

#include "io/text/utf8.hpp"
#include "io/writers/text_table.hpp"
#include "io/yaml/yaml.hpp"
#include "tests/io/scratch.hpp"

namespace pipewright::tests {
namespace {

// What tries to end a line, a string, a cell, an element, or to be seen as something else.
constexpr std::string_view kHostile[] = {
    "two\nlines",
    "two\r\nlines",
    "a\rb",
    "a\u2028b\u2029c",
    "a\xc2\x85"
    "b",
    "a\vb\fc",
    "\tx",
    "\x1b[2J\x9b",
    "\u202Eexe.txt",
    "a\u2066b\u2069\u200E\u200F\u061C",
    "zero\u200Bwidth\uFEFF",
    "tags \U000E0041\U000E0042",
    "\uFFFE\uFFFF",
    "\xff\xfe broken \xe2\x82",
    "<script>alert(1)</script>",
    "&lt;b&gt; & &#60;",
    "[click](http://example.com)",
    "![x][y]: z",
    "a | b",
    "`rm -rf`` x",
    "*a* _b_ ~~c~~ $d$",
    "# heading",
    "- item",
    "1. item",
    "=1+1",
    "+1-1",
    "-cmd|' /C calc'!A0",
    "@SUM(A1);=2",
    "\"quoted\", 'single' \\ and\\",
    "\"\"\"\nimport os",
};

bool all_is_seen(std::string_view text) {
  return printable(text) == text;
}

// The text of the element and of the attribute in <a b="..">..</a>.
std::array<std::string, 2> parsed_xml(const std::string& document) {
  std::array<std::string, 2> texts;
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype(&XML_ParserFree)> parser(XML_ParserCreate("UTF-8"),
                                                                                             XML_ParserFree);
  XML_SetUserData(parser.get(), &texts);
  XML_SetElementHandler(
      parser.get(),
      [](void* user, const XML_Char*, const XML_Char** attributes) {
        (*static_cast<std::array<std::string, 2>*>(user))[0] += attributes[1];
      },
      nullptr);
  XML_SetCharacterDataHandler(parser.get(), [](void* user, const XML_Char* text, int length) {
    (*static_cast<std::array<std::string, 2>*>(user))[1] += std::string_view(text, static_cast<std::size_t>(length));
  });
  const XML_Status status = XML_Parse(parser.get(), document.data(), static_cast<int>(document.size()), 1);
  CHECK_MESSAGE(status == XML_STATUS_OK, document);
  return texts;
}

// The fields of one line of CSV.
std::vector<std::string> parsed_csv(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line.substr(i).starts_with("\"\"") && quoted)
      fields.back() += line[++i];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += line[i];
  }
  CHECK_FALSE(quoted);
  return fields;
}

}  // namespace

TEST_CASE("Text is printed as far as it can be seen") {
  CHECK(printable("pay\u202Eload\x1B") == "pay\\u202eload\\x1b");
  CHECK(printable("a\xc2\x85\u200B\U000E0041\xff\n") == "a\\u0085\\u200b\\U000e0041\\xff\n");
  CHECK(printable("größer, 模型, \U0001F600, na\u00efve") == "größer, 模型, \U0001F600, na\u00efve");
  CHECK(one_line("a\r\nb\nc\td\re") == "a b c d\\x0de");
  CHECK(for_terminal("a\tb\r\n\x1b[33mc\x1b[0m\x1b[2J\u202E") == "a\tb\r\n\x1b[33mc\x1b[0m\\x1b[2J\\u202e");
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    CHECK(all_is_seen(printable(name)));
    CHECK(all_is_seen(one_line(name)));
    CHECK(one_line(name).find('\n') == std::string::npos);
  }
}

TEST_CASE("A comment is one line, whatever its text holds") {
  CHECK(comment("") == "#\n");
  CHECK(comment("a\nimport os") == "# a import os\n");
  for (const std::string_view name : kHostile) {
    const std::string line = comment(name);
    CAPTURE(line);
    CHECK(line.starts_with("# "));
    CHECK(line.find_first_of("\n\r\v\f") == line.size() - 1);
    CHECK(all_is_seen(line.substr(0, line.size() - 1)));
    CHECK(line == comment_text(name) + "\n");
  }
}

TEST_CASE("A word of a command stands on one line, in the quotes that it needs") {
  CHECK(shell_word("plans/a-1.yaml") == "plans/a-1.yaml");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("it's $HOME") == "'it'\\''s $HOME'");
  CHECK(shell_word("two\nlines' \\") == "$'two\\nlines\\' \\\\'");
  CHECK(shell_word("\u202Ex\x1b") == "$'\\xe2\\x80\\xaex\\x1b'");
  CHECK(shell_path("-x.yaml") == "./-x.yaml");
  CHECK(shell_path("-") == "-");
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    CHECK(shell_word(name).find_first_of("\n\r\v\f") == std::string::npos);
    CHECK(all_is_seen(shell_word(name)));
  }
}

TEST_CASE("YAML gives a text back as it was, and a control character spelt out") {
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    const std::string text = "name: " + yaml_string(name) + "\n";
    CHECK(all_is_seen(text));
    CHECK(parse_yaml(text, "").find("name")->scalar == (is_text(name) ? std::string(name) : printable(name)));
    CHECK_NOTHROW(read_text(ScenarioText{.more = text}));
  }
  CHECK(message_of([] { yaml_path("a\x1b.csv"); }) ==
        "the path \"a\\x1b.csv\" holds a character that no scenario can; rename the file or its folder");
  CHECK(yaml_path("/a\u202E.csv") == "\"/a\\u202e.csv\"");
}

TEST_CASE("JSON gives every text back, and shows nothing that cannot be seen") {
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    CHECK(all_is_seen(json_string(name)));
    const auto back = nlohmann::json::parse(json_string(name)).get<std::string>();
    CHECK((back == name || name.find_first_of("\xff\x9b") != std::string_view::npos));  // which are no UTF-8
  }
  CHECK(json_string("\xff\U000E0041") == "\"\uFFFD\\udb40\\udc41\"");
}

TEST_CASE("A text in CSV is never a formula, and numbers stay numbers") {
  CHECK(csv_field("=1+1") == "'=1+1");
  CHECK(csv_field("-5 %") == "'-5 %");
  CHECK(csv_field("\uFF1D1") == "'\uFF1D1");
  for (const char* number : {"-0.5", "+1e9", "-3", "12"})
    CHECK(csv_field(number) == number);
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    const std::vector<std::string> fields = parsed_csv("a," + csv_field(name) + ",b");
    REQUIRE(fields.size() == 3);
    const bool formula = std::string_view("=+-@").find(name.front()) != std::string_view::npos;
    CHECK(fields[1] == (formula ? "'" : "") + one_line(name));
    CHECK(std::string_view("=+-@\t\r\n").find(fields[1].front()) == std::string_view::npos);
    if (name.find(';') != std::string_view::npos) CHECK(csv_field(name).front() == '"');  // no cell of its own
  }
}

TEST_CASE("A text in Markdown has no markup but short code") {
  CHECK(markdown_text("<script>a</script> & &lt;") == "&lt;script>a&lt;/script> & &amp;lt;");
  CHECK(markdown_text("[click](http://example.com)") == "[click\\]\\(http://example.com)");
  CHECK(markdown_text("*a* _b_ snake_case ~~c~~ $d$") == "\\*a\\* \\_b\\_ snake_case \\~\\~c\\~\\~ \\$d\\$");
  CHECK(markdown_text("as `pipewright plan -o x.yaml` says") == "as `pipewright plan -o x.yaml` says");
  CHECK(markdown_text("`<b>` ``x`` `") == "\\`&lt;b>\\` \\`\\`x\\`\\` \\`");
  CHECK(markdown_text("# a") == "\\# a");
  CHECK(markdown_text("> a") == "&gt; a");
  CHECK(markdown_text("- a") == "\\- a");
  CHECK(markdown_text("1. a") == "1\\. a");
  CHECK(markdown_text("-1.5 ms, 2.5 GB, a [1] (2) | 3") == "-1.5 ms, 2.5 GB, a [1] (2) | 3");
  CHECK(markdown_text("a\\*b\\") == "a\\\\\\*b\\\\");
  CHECK(markdown_cell("# a | \\u202e") == "# a \\| \\u202e");
  CHECK(markdown_code("plan.stages") == "`plan.stages`");
  CHECK(markdown_code("a`b|<c>") == "a\\`b|&lt;c>");
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    const std::string table = markdown_table({{"name", true, false, {std::string(name)}}, {"n", false, false, {"1"}}});
    CHECK(all_is_seen(table));
    CHECK(std::count(table.begin(), table.end(), '\n') == 3);
    CHECK(table.find('<') == std::string::npos);
    CHECK(table.find("](") == std::string::npos);
    std::size_t bars = 0;
    for (std::size_t i = 0; i < table.size(); ++i)
      bars += table[i] == '|' && (i == 0 || table[i - 1] != '\\') ? 1 : 0;
    CHECK(bars == 9);
  }
}

TEST_CASE("A text in HTML and SVG is text, and all of it is seen") {
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    const auto [attribute, content] = parsed_xml("<a b=\"" + xml(name) + "\">" + xml(name) + "</a>");
    CHECK(content == one_line(name));
    CHECK(attribute == one_line(name));
    CHECK(all_is_seen(xml(name)));
  }
}

TEST_CASE("A table of a terminal has a row a line, as wide as what is seen") {
  for (const std::string_view name : kHostile) {
    CAPTURE(name);
    const std::string table = text_table({{"name", true, false, {std::string(name)}}, {"n", false, false, {"1"}}}, 200);
    CHECK(std::count(table.begin(), table.end(), '\n') == 2);
    CHECK(all_is_seen(table));
    CHECK(table.find(one_line(name)) != std::string::npos);
    CHECK(all_is_seen(wrapped("", name, 80)));
  }
}

TEST_CASE("A label for Graphviz ends where its text does") {
  CHECK(dot_string("a\"; b [label=\"\\N\n\x1b") == "\"a\\\"; b [label=\\\"\\\\N\\n\\\\x1b\"");
}

}  // namespace pipewright::tests
