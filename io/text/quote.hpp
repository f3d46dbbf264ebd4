// Text from outside (names, paths, descriptions, sources) as each format takes it: one function per format, which
// everything that is written goes through. None can end the comment, string, cell or element that it stands in.
//
//     format     function       of "a\n=|<b>"            what it is for
//     comment    comment        # a =|<b>                programs and YAML, where a line end would begin a statement
//     bash       shell_word     $'a\n=|<b>'
//     YAML       yaml_string    "a\n=|<b>"
//     JSON       json_string    "a\n=|<b>"
//     CSV        csv_field      a =|<b>                  alone "=|<b>" is '=|<b>: spreadsheets compute what begins so
//     Markdown   markdown_text  a =\|&lt;b>              no markup but short `code`, one line
//     XML        xml            a =|&lt;b&gt;            HTML and SVG
//     Graphviz   dot_string     "a\n=|<b>"
//
// What cannot be seen (io/text/utf8.hpp) is escaped in all of them. JSON and YAML give it back as it was, but for control
// characters in YAML, which a scenario may not hold: these are spelt out, so that what is written can be read.
//
// Tests: tests/io/quote_test.cpp; of whole files: tests/cli/hostile_names_test.py
#pragma once

#include <string>
#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::io {

std::string comment(std::string_view text);       // "# text" and a line end; "#" alone of an empty text
std::string comment_text(std::string_view text);  // the same without the line end, to stand behind something
// An argument of a command: quoted where it holds anything but letters, digits and a few signs.
std::string shell_word(std::string_view text);
std::string shell_path(std::string_view path);   // the same, and never taken for an option
std::string yaml_string(std::string_view text);  // plain where that is safe, else in double quotes
// `path` in YAML. Throws InputError where it holds a control character or no UTF-8: no scenario could name it.
std::string yaml_path(const std::string& path);
std::string json_string(std::string_view text);  // bytes that are no UTF-8 become U+FFFD
// A field as RFC 4180 quotes it, never a number's. What a spreadsheet takes for a formula gets a ' in front. [Owasp26]
std::string csv_field(std::string_view text);
std::string markdown_text(std::string_view text);  // of a paragraph, a heading, an item of a list      [CommonMark24]
std::string markdown_cell(std::string_view text);  // of a table's cell, where no block can begin
std::string markdown_code(std::string_view text);  // in backticks, where it holds no markup
std::string xml(std::string_view text);            // for content and for attributes in double quotes
std::string dot_string(std::string_view text);

}  // namespace pipewright::io
