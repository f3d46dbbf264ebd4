#include "io/writers/json_text.hpp"

#include <cmath>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"

namespace pipewright::io {
void JsonText::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (open_.empty()) return;
  if (!first_) text_ += ',';
  text_ += '\n';
  text_.append(2 * open_.size(), ' ');
  first_ = false;
}

JsonText& JsonText::raw(std::string_view token) {
  before_value();
  text_ += token;
  return *this;
}

JsonText& JsonText::open(char bracket) {
  before_value();
  text_ += bracket;
  open_.push_back(bracket == '{' ? '}' : ']');
  first_ = true;
  return *this;
}

JsonText& JsonText::close() {
  const char bracket = open_.back();
  open_.pop_back();
  if (!first_) text_ += '\n', text_.append(2 * open_.size(), ' ');
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonText& JsonText::key(std::string_view name) {
  before_value();
  text_ += json_string(name) + ": ";
  after_key_ = true;
  return *this;
}

JsonText& JsonText::value(std::string_view text) {
  return raw(json_string(text));
}

JsonText& JsonText::value(std::int64_t number) {
  return raw(fmt::format("{}", number));
}

JsonText& JsonText::value(bool flag) {
  return raw(flag ? "true" : "false");
}

JsonText& JsonText::value(double number) {
  return std::isfinite(number) ? raw(fmt::format("{}", number)) : null();
}

JsonText& JsonText::value(Time time) {
  return raw(exact_seconds(time));
}

JsonText& JsonText::null() {
  return raw("null");
}

}  // namespace pipewright::io
