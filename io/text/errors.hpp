// Every error of an input, collected and thrown together: one line each, in file order.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace pipewright::io {

// "text" in quotes for a message: control characters escaped, long texts cut in the middle.
std::string in_quotes(std::string_view text);

class Errors {
 public:
  // More are counted, not kept: a file of the wrong kind would print thousands.
  static constexpr std::size_t kShown = 20;

  void add(const Place& place, std::string text) { keep({place, "", std::move(text)}); }
  void add(const Place& place, std::string key, std::string text) { keep({place, std::move(key), std::move(text)}); }
  void keep(Fault fault);
  void add(const InputError& error);
  bool empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }
  bool full() const { return faults_.size() >= kShown; }
  void throw_if_any() const;  // InputError; files in the order of their first error, then by line and column

 private:
  std::vector<Fault> faults_;
  std::size_t count_ = 0;
};

}  // namespace pipewright::io
