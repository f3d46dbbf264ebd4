#include "io/import/schedule_csv.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "io/read/read_file.hpp"
#include "io/text/errors.hpp"
#include "io/text/letters.hpp"
#include "io/text/trimmed.hpp"

namespace pipewright::io {
namespace {

constexpr std::uint32_t kMostStages = 65535;  // an op keeps its stage in 16 bits
constexpr std::uint32_t kMostMicroBatches = 1U << 24;
constexpr std::size_t kLargestSchedule = std::size_t{256} << 20;
constexpr std::string_view kForm =
    "write <stage><action><micro-batch>, e.g. 0F3; actions: F, B, I, W, and SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, "
    "RESHARD, REDUCE_GRAD";

struct ActionName {
  std::string_view text;
  std::optional<Kind> kind;  // none: derived here from the order
  bool micro_batch = true;   // is named
};
constexpr std::array<ActionName, 11> kActions = {{
    {"F", Kind::F},
    {"B", Kind::BW},
    {"I", Kind::B},
    {"W", Kind::W},
    {"SEND_F", std::nullopt},
    {"RECV_F", std::nullopt},
    {"SEND_B", std::nullopt},
    {"RECV_B", std::nullopt},
    {"UNSHARD", std::nullopt, false},
    {"RESHARD", std::nullopt, false},
    {"REDUCE_GRAD", std::nullopt, false},
}};

struct Number {
  std::uint32_t value = 0;  // large ones stop at 2^31
  std::string_view text;    // as written
};

// The digits at the head of `text`, taken off; none: no digit.
std::optional<Number> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  std::size_t length = 0;
  for (; length < text.size() && is_digit(text[length]); ++length)
    value = std::min<std::uint64_t>(10 * value + static_cast<std::uint64_t>(text[length] - '0'), 1ULL << 31);
  if (length == 0) return std::nullopt;
  const Number number{static_cast<std::uint32_t>(value), text.substr(0, length)};
  text.remove_prefix(length);
  return number;
}

std::string as_written(const Number& number) {
  constexpr std::size_t kLongest = 40;
  return std::string(number.text.substr(0, kLongest)) + (number.text.size() > kLongest ? "..." : "");
}

// Whether a row is the head of a table, as `sweep -o FILE.csv` and spreadsheets write it: words, the first in lower
// case.
bool is_table_head(std::string_view row) {
  const std::string_view first = row.substr(0, row.find(','));
  const auto in_word = [](char c) { return (c >= 'a' && c <= 'z') || c == '_' || c == '.'; };
  if (first.size() < 3 || first.size() == row.size() || !std::ranges::all_of(first, in_word)) return false;
  for (std::size_t at = 0; at < row.size(); ++at)
    if ((at == 0 || row[at - 1] == ',') && is_digit(row[at])) return false;
  return true;
}

class Reading {
 public:
  explicit Reading(const std::string& file) { given_.file = file; }

  GivenSchedule all(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ' || text.back() == '\t'))
      text.remove_suffix(1);
    for (line_ = 1; !text.empty() && !errors_.full(); ++line_) {
      const auto end = text.find('\n');
      std::string_view row = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
      if (row.ends_with('\r')) row.remove_suffix(1);
      if (line_ == 1 && is_table_head(row))
        throw InputError(here(), "is a table of results, whose first column is " +
                                     in_quotes(row.substr(0, row.find(','))) +
                                     ", not a schedule, whose rows are ranks and whose cells actions such as 0F3; name "
                                     "a FILE.schedule.csv");
      read_row(row);
    }
    if (wrong_ > 0)
      errors_.add(wrong_at_,
                  wrong_cell_ + (wrong_ == 1   ? ""
                                 : wrong_ == 2 ? "; another cell is wrong, too"
                                               : "; " + std::to_string(wrong_ - 1) + " more cells are wrong, too"));
    errors_.throw_if_any();
    settle(given_);
    return std::move(given_);
  }

 private:
  Place here() const { return {given_.file, line_, static_cast<int>(column_)}; }

  void read_row(std::string_view row) {
    given_.compute.emplace_back(), given_.cells.emplace_back();
    for (std::size_t at = 0; at <= row.size() && !errors_.full();) {
      column_ = at + 1;
      std::size_t end = row.find(',', at);
      if (at < row.size() && row[at] == '"') {
        const auto closing = row.find('"', at + 1);
        if (closing == std::string_view::npos) return errors_.add(here(), "a quoted cell has no end; close the quote");
        end = row.find(',', closing);
      }
      const std::string_view cell = row.substr(at, end == std::string_view::npos ? end : end - at);
      read_cell(unquoted(cell));
      if (end == std::string_view::npos) break;
      at = end + 1;
    }
    const bool idle = given_.compute.back().empty();
    column_ = 1;
    if (idle && errors_.empty() && wrong_ == 0)
      errors_.add(here(), "rank " + std::to_string(given_.compute.size() - 1) +
                              " runs nothing; every row is a rank and runs at least one stage");
  }

  static std::string_view unquoted(std::string_view cell) {
    cell = trimmed(cell, kBlanks);
    if (cell.size() > 1 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
    return trimmed(cell, kBlanks);
  }

  void read_cell(std::string_view cell) {
    if (cell.empty()) return;
    if (cell.front() != '(') return read_action(cell, cell);
    const auto closing = cell.find(')');
    if (closing == std::string_view::npos || cell.substr(closing + 1) != "OVERLAP_F_B")
      return wrong(in_quotes(cell) + " is not an overlap; write e.g. (0F1;1B0)OVERLAP_F_B");
    const std::size_t first = given_.compute.back().size();
    std::string_view inside = cell.substr(1, closing - 1);
    for (;;) {
      const auto semicolon = inside.find(';');
      read_action(trimmed(inside.substr(0, semicolon), kBlanks), cell);
      if (semicolon == std::string_view::npos) break;
      inside.remove_prefix(semicolon + 1);
    }
    for (std::size_t i = first; i + 1 < given_.compute.back().size(); ++i)
      given_.compute.back()[i].with_next = 1;
  }

  // Of wrong cells the first is told, and how many there are: in a file of another kind all are.
  void wrong(const std::string& message) {
    if (wrong_++ == 0) wrong_at_ = here(), wrong_cell_ = message;
  }

  // An action; `cell` is where it stands.
  void read_action(std::string_view action, std::string_view cell) {
    const auto refuse = [&](const std::string& why) {
      wrong(in_quotes(action) + (action.size() == cell.size() ? "" : " in " + in_quotes(cell)) + " " + why);
    };
    std::string_view rest = action;
    const auto stage = take_number(rest);
    std::size_t letters = 0;
    while (letters < rest.size() && !is_digit(rest[letters]))
      ++letters;
    const std::string_view name = rest.substr(0, letters);
    rest.remove_prefix(letters);
    const auto micro_batch = take_number(rest);
    const ActionName* known = nullptr;
    for (const ActionName& each : kActions)
      if (each.text == name) known = &each;
    if (!stage || known == nullptr || !rest.empty()) return refuse("is not an action; " + std::string(kForm));
    if (stage->value >= kMostStages)
      return refuse("is of stage " + as_written(*stage) + "; stages are numbered from 0 to 65534");
    if (known->micro_batch && !micro_batch) return refuse("names no micro-batch; write e.g. 0F3");
    if (micro_batch && micro_batch->value >= kMostMicroBatches)
      return refuse("is of micro-batch " + as_written(*micro_batch) + "; they are numbered from 0 to 16777215");
    if (!known->kind) {
      ++given_.derived;
      return;
    }
    given_.compute.back().push_back({*known->kind, static_cast<std::uint16_t>(stage->value), micro_batch->value, 0});
    given_.cells.back().push_back({line_, static_cast<int>(column_)});
  }

  GivenSchedule given_;
  Errors errors_;
  std::size_t wrong_ = 0;
  Place wrong_at_;
  std::string wrong_cell_;
  int line_ = 1;
  std::size_t column_ = 1;
};

}  // namespace

GivenSchedule parse_schedule_csv(std::string_view text, const std::string& file) {
  return Reading(file).all(text);
}

GivenSchedule read_schedule_csv(const std::string& path) {
  return parse_schedule_csv(read_file(path, kLargestSchedule), path);
}

}  // namespace pipewright::io
