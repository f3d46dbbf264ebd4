#include "io/import/json_places.hpp"

#include <algorithm>
#include <vector>

namespace pipewright::io {
namespace {

constexpr std::size_t kDeepestRecorded = 2;  // objects whose keys are recorded: the outer one and those in it

bool blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// One pass over well-formed JSON.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::map<std::string, Place, std::less<>> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        string();
        continue;
      }
      if (c == '{' || c == '[')
        open_.push_back({c == '{', true, key_.empty() ? "" : key_ + "."}), key_.clear();
      else if ((c == '}' || c == ']') && !open_.empty())
        open_.pop_back();
      else if (c == ',' && !open_.empty())
        open_.back().expects_key = true, key_.clear();
      step();
    }
    return std::move(places_);
  }

 private:
  struct Open {
    bool object;
    bool expects_key;
    std::string prefix;
  };

  void step() {
    if (text_[at_] == '\n')
      ++place_.line, place_.column = 1;
    else
      ++place_.column;
    ++at_;
  }

  void string() {
    step();
    std::string raw;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) raw += text_[at_], step();
      raw += text_[at_], step();
    }
    if (at_ < text_.size()) step();
    if (open_.empty() || !open_.back().object || !open_.back().expects_key) return;
    open_.back().expects_key = false;
    while (at_ < text_.size() && (blank(text_[at_]) || text_[at_] == ':'))
      step();
    if (open_.size() > kDeepestRecorded) return;
    key_ = open_.back().prefix + raw;
    places_.emplace(key_, Place{file_, place_.line, place_.column});
  }

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  Place place_{{}, 1, 1};
  std::vector<Open> open_;
  std::string key_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace

std::map<std::string, Place, std::less<>> json_places(std::string_view text, const std::string& file) {
  return Scanner(text, file).run();
}

Place json_place(std::string_view text, std::size_t offset, const std::string& file) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::ranges::count(before, '\n');
  const std::size_t last = before.rfind('\n');
  const std::size_t column = last == std::string_view::npos ? before.size() : before.size() - last - 1;
  return {file, static_cast<int>(line) + 1, static_cast<int>(column) + 1};
}

}  // namespace pipewright::io
