// `nvidia-smi topo -m`:
//
//           GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity
//   GPU0     X    NV18  PIX   0-23          0
//   GPU1    NV18   X    SYS   24-47         1
//   NIC0    PIX   SYS    X
//
//   NIC Legend:
//     NIC0: mlx5_0
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "io/errors.hpp"
#include "io/import/topology_file.hpp"
#include "io/read_file.hpp"
#include "io/utf8.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kMostColumns = 1024;
constexpr int kMostLinks = 64;  // of a cell; 18 today

struct Word {
  std::string_view text;
  int column;
};

// Escape sequences (the header is underlined on a terminal) as blanks, so that columns stay.
std::string without_escapes(std::string_view line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain += line[i];
      continue;
    }
    while (i < line.size() && line[i] != 'm')
      ++i;
  }
  return plain;
}

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  for (std::size_t at = 0;;) {
    at = line.find_first_not_of(" \t\r", at);
    if (at == std::string_view::npos) return words;
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back({line.substr(at, end - at), static_cast<int>(at) + 1});
    at = end;
  }
}

bool is_gpu(std::string_view name) {
  return name.size() > 3 && name.starts_with("GPU") &&
         std::all_of(name.begin() + 3, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class Matrix {
 public:
  explicit Matrix(const std::string& file) : file_(file) {}

  MachineTopology read(std::string_view text) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = without_escapes(text.substr(begin, end - begin));
      begin = end + 1;
      ++line_;
      read_line(line);
    }
    if (columns_.empty())
      throw InputError(Place{file_, 0, 0},
                       "has no matrix (a line that begins with GPU0); give what nvidia-smi topo -m prints");
    return topology();
  }

 private:
  Place at(const Word& word) const { return {file_, line_, word.column}; }

  void read_line(const std::string& line) {
    const std::vector<Word> words = words_of(line);
    if (words.empty()) return;
    if (columns_.empty()) {
      if (is_gpu(words[0].text) && (words.size() == 1 || words[1].text != "X")) header(words);
      return;
    }
    const std::string_view name = words[0].text;
    if (const auto colon = name.find(':'); colon != std::string_view::npos) {  // NIC0: mlx5_0
      if (words.size() == 2 && colon + 1 == name.size() && number_.contains(std::string(name.substr(0, colon))))
        legend_[std::string(name.substr(0, colon))] = std::string(words[1].text);
      return;
    }
    if (const auto found = number_.find(std::string(name)); found != number_.end()) row(found->second, words);
  }

  void header(const std::vector<Word>& words) {
    for (const Word& word : words) {
      if (word.text == "CPU" || word.text == "NUMA") break;
      if (columns_.size() == kMostColumns)
        throw InputError(at(word), fmt::format("more than {} columns; is this a matrix of one machine?", kMostColumns));
      if (!number_.emplace(std::string(word.text), columns_.size()).second)
        throw InputError(at(word),
                         fmt::format("two columns {}; give what nvidia-smi topo -m prints", in_quotes(word.text)));
      columns_.emplace_back(word.text);
    }
    cells_.assign(columns_.size(), {});
    lines_.assign(columns_.size(), 0);
  }

  void row(std::size_t number, const std::vector<Word>& words) {
    if (!cells_[number].empty()) throw InputError(at(words[0]), fmt::format("a second row {}", columns_[number]));
    if (words.size() < columns_.size() + 1)
      throw InputError(at(words.back()), fmt::format("row {} has {} cells, the header {} columns; is the file cut off?",
                                                     columns_[number], words.size() - 1, columns_.size()));
    lines_[number] = line_;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      check(words[i + 1], number == i);
      cells_[number].emplace_back(words[i + 1].text);
    }
  }

  void check(const Word& cell, bool own) const {
    constexpr std::array<std::string_view, 6> kClasses = {"PIX", "PXB", "PHB", "NODE", "SYS", "SOC"};
    if (own ? cell.text == "X" : links(cell.text) > 0) return;
    if (!own && std::find(kClasses.begin(), kClasses.end(), cell.text) != kClasses.end()) return;
    throw InputError(at(cell), own ? fmt::format("{} where a device meets itself; expected X", in_quotes(cell.text))
                                   : fmt::format("{} is no connection; known: NV1 to NV{}, PIX, PXB, PHB, NODE, SYS",
                                                 in_quotes(cell.text), kMostLinks));
  }

  // Of "NV18"; 0: no NVLinks.
  static int links(std::string_view cell) {
    int count = 0;
    if (!cell.starts_with("NV")) return 0;
    const auto [end, error] = std::from_chars(cell.data() + 2, cell.data() + cell.size(), count);
    const bool whole = error == std::errc{} && end == cell.data() + cell.size();
    return whole && count >= 1 && count <= kMostLinks ? count : 0;
  }

  MachineTopology topology() const {
    MachineTopology machine;
    std::vector<std::size_t> gpus, cards;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      (is_gpu(columns_[i]) ? gpus : cards).push_back(i);
      if (is_gpu(columns_[i]) && cells_[i].empty())
        throw InputError(Place{file_, 0, 0},
                         fmt::format("has a column {} and no such row; is the file cut off?", columns_[i]));
    }
    for (const std::size_t a : gpus) {
      machine.gpus.push_back(columns_[a]);
      std::vector<int>& counts = machine.nvlinks.emplace_back();
      std::vector<std::string>& classes = machine.by.emplace_back();
      for (const std::size_t b : gpus) {
        if (cells_[a][b] != cells_[b][a])
          throw InputError(Place{file_, lines_[a], 1},
                           fmt::format("{} and {} are joined by {}, and by {} the other way", columns_[a], columns_[b],
                                       cells_[a][b], cells_[b][a]));
        counts.push_back(links(cells_[a][b]));
        classes.push_back(cells_[a][b]);
      }
      std::vector<std::size_t>& near = machine.near.emplace_back();
      for (std::size_t i = 0; i < cards.size(); ++i)
        if (cells_[a][cards[i]] == "PIX" || cells_[a][cards[i]] == "PXB") near.push_back(i);
    }
    machine.switch_links.assign(gpus.size(), 0);
    for (const std::size_t card : cards) {
      const auto name = legend_.find(columns_[card]);
      const std::string& shown = name == legend_.end() ? columns_[card] : name->second;
      machine.cards.push_back({printable(shown.substr(0, 64)), std::nullopt});
    }
    return machine;
  }

  const std::string& file_;
  int line_ = 0;
  std::vector<std::string> columns_;
  std::map<std::string, std::size_t> number_;
  std::map<std::string, std::string> legend_;
  std::vector<std::vector<std::string>> cells_;
  std::vector<int> lines_;
};

}  // namespace

MachineTopology parse_topo_matrix(const std::string& text, const std::string& file) {
  return Matrix(file).read(text);
}

MachineTopology read_topo_matrix(const std::string& path) {
  MachineTopology machine = parse_topo_matrix(read_file(path), path == "-" ? "standard input" : path);
  machine.source = source_of(path, "nvidia-smi topo -m");
  machine.source.absent.emplace_back("speeds of any link, the kind of the GPUs");
  return machine;
}

}  // namespace pipewright
