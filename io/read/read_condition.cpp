#include "io/read/read_condition.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"

namespace pipewright::io {
namespace {

using Relation = Comparison::Relation;

// Longer ones first.
constexpr std::array<std::pair<std::string_view, Relation>, 6> kRelations = {{{"<=", Relation::LessOrEqual},
                                                                              {">=", Relation::GreaterOrEqual},
                                                                              {"==", Relation::Equal},
                                                                              {"!=", Relation::NotEqual},
                                                                              {"<", Relation::Less},
                                                                              {">", Relation::Greater}}};

constexpr std::string_view kExample = "write e.g. plan.stages * plan.data_parallel <= 64";

bool is_relation(std::string_view token) {
  for (const auto& [text, relation] : kRelations)
    if (text == token) return true;
  return false;
}

std::vector<std::string> tokens(std::string_view text) {
  std::vector<std::string> list;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '\t' || text[i] == '\n') {
      ++i;
      continue;
    }
    std::size_t length = 0;
    for (const auto& [relation, unused] : kRelations)
      if (length == 0 && text.substr(i).starts_with(relation)) length = relation.size();
    if (text[i] == '*' || (text[i] == '=' && length == 0)) length = 1;
    if (length == 0) length = std::min(text.find_first_of(" \t\n*<>=!", i + 1), text.size()) - i;
    list.emplace_back(text.substr(i, length));
    i += length;
  }
  return list;
}

class Parser {
 public:
  Parser(std::string_view text, const Place& place) : tokens_(tokens(text)), place_(place) {}

  std::vector<Comparison> condition() {
    std::vector<Comparison> all = {comparison()};
    while (next_ < tokens_.size()) {
      if (tokens_[next_] != "and") refuse("where \"and\" or the end is expected");
      ++next_;
      all.push_back(comparison());
    }
    return all;
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    throw InputError(place_, next_ < tokens_.size()
                                 ? fmt::format("where: {} {}; {}", in_quotes(tokens_[next_]), why, kExample)
                                 : fmt::format("where: ends {}; {}", why, kExample));
  }

  Comparison comparison() {
    Comparison result;
    result.place = place_;
    const std::size_t begin = next_;
    result.left = product();
    if (next_ >= tokens_.size() || !is_relation(tokens_[next_]))
      refuse("where a comparison (<, <=, >, >=, ==, !=) is expected");
    for (const auto& [text, relation] : kRelations)
      if (text == tokens_[next_]) result.relation = relation;
    ++next_;
    result.right = product();
    for (std::size_t i = begin; i < next_; ++i)
      result.text += (i > begin ? " " : "") + tokens_[i];
    return result;
  }

  std::vector<Comparison::Term> product() {
    std::vector<Comparison::Term> terms = {term()};
    while (next_ < tokens_.size() && tokens_[next_] == "*") {
      ++next_;
      terms.push_back(term());
    }
    return terms;
  }

  bool ends_a_term(const std::string& token) const { return token == "*" || token == "and" || is_relation(token); }

  Comparison::Term term() {
    if (next_ >= tokens_.size() || ends_a_term(tokens_[next_])) refuse("where a number, a key or a figure is expected");
    const std::string& token = tokens_[next_];
    const char first = token.front();
    if ((first >= '0' && first <= '9') || first == '-' || first == '+' || first == '.') return number();
    if (first == '=') refuse("is not a comparison; equality is ==");
    const bool word = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') || first == '_';
    if (!word) refuse("is neither a number nor a key");
    ++next_;
    if (token == "true" || token == "false") return {parse_magnitude(token), {}};
    return {std::nullopt, token};
  }

  // "79 GiB": a number and, where the next word is no operator, its unit.
  Comparison::Term number() {
    std::string text = tokens_[next_];
    if (next_ + 1 < tokens_.size() && !ends_a_term(tokens_[next_ + 1])) text += " " + tokens_[next_ + 1];
    const std::optional<Magnitude> amount = parse_magnitude(text);
    if (!amount) refuse("is not a number with a unit");
    next_ += text == tokens_[next_] ? 1 : 2;
    return {amount, {}};
  }

  std::vector<std::string> tokens_;
  std::size_t next_ = 0;
  Place place_;
};

}  // namespace

std::optional<Magnitude> parse_magnitude(std::string_view text) {
  if (text == "true" || text == "false") return Magnitude{text == "true" ? 1.0 : 0.0};
  if (const auto number = parse_number(text).value) return Magnitude{*number};
  if (text.ends_with('%')) {
    std::string_view figure = text.substr(0, text.size() - 1);
    while (figure.ends_with(' '))
      figure.remove_suffix(1);
    if (const auto number = parse_number(figure).value) return Magnitude{*number / 100};
  }
  if (const auto time = parse_time(text).value) return Magnitude{seconds(*time), Unit::Second};
  if (const auto size = parse_bytes(text).value) return Magnitude{static_cast<double>(size->value), Unit::Byte};
  if (const auto rate = parse_bandwidth(text).value) return Magnitude{rate->value, Unit::BytePerSecond};
  if (const auto work = parse_flops(text).value) return Magnitude{work->value, Unit::Flop};
  if (const auto rate = parse_flop_rate(text).value) return Magnitude{rate->value, Unit::FlopPerSecond};
  return std::nullopt;
}

std::vector<Comparison> parse_condition(std::string_view text, const Place& place) {
  return Parser(text, place).condition();
}

}  // namespace pipewright::io
