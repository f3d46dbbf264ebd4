// Writes a JSON document token by token: keys in the order given, times as exact decimals, indented by two spaces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace pipewright::io {

class JsonText {
 public:
  JsonText& open(char bracket);  // '{' or '['
  JsonText& close();             // the innermost one
  JsonText& key(std::string_view name);

  JsonText& value(std::string_view text);
  JsonText& value(const char* text) { return value(std::string_view(text)); }
  JsonText& value(const std::string& text) { return value(std::string_view(text)); }
  JsonText& value(std::int64_t number);
  JsonText& value(int number) { return value(static_cast<std::int64_t>(number)); }
  JsonText& value(bool flag);
  JsonText& value(double number);  // shortest text that reads back as the same double; not finite: null
  JsonText& value(Time time);      // seconds with nine decimals
  JsonText& value(Bytes bytes) { return value(bytes.value); }
  JsonText& value(Bandwidth bandwidth) { return value(bandwidth.value); }
  JsonText& null();
  template <class T>
  JsonText& value(const std::optional<T>& maybe) {
    return maybe ? value(*maybe) : null();
  }
  template <class T>
  JsonText& value(const std::vector<T>& list) {
    open('[');
    for (const T& entry : list)
      value(entry);
    return close();
  }

  template <class T>
  JsonText& field(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  std::string text() && { return std::move(text_) + "\n"; }

 private:
  void before_value();
  JsonText& raw(std::string_view token);

  std::string text_;
  std::vector<char> open_;
  bool first_ = true, after_key_ = false;
};

}  // namespace pipewright::io
