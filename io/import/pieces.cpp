#include "io/import/pieces.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/read/json_input.hpp"
#include "io/read/read_file.hpp"
#include "io/store/sha256.hpp"
#include "io/text/csv_line.hpp"
#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"
#include "io/text/trimmed.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {
namespace {

constexpr std::int64_t kMostChunks = 65535;  // an op keeps its chunk in 16 bits
constexpr std::int64_t kMostSamples = 1'000'000'000;
constexpr std::size_t kMostRows = 4'000'000;  // of chunks on ranks
constexpr int kPieceMillisecond = 6;          // powers of ten to nanoseconds
constexpr std::string_view kSchema = "pipewright.pieces/1";
constexpr std::string_view kWayOut =
    "columns: chunk, rank, forward_ms, backward_ms (or backward_input_ms and backward_weight_ms), kept_bytes, "
    "output_bytes, "
    "states_bytes, parameters";
constexpr std::size_t kLargestPieces = std::size_t{256} << 20;  // bytes of a file

// A chunk on one rank; times in ns.
struct Piece {
  std::optional<std::int64_t> chunk, rank, forward, backward, input, weight, kept, output, states, parameters;
  Place place;
  std::string where;  // "pieces[3]", "": the line says it
};

struct Figure {
  std::string_view name;
  std::optional<std::int64_t> Piece::*value;
  int power_of_ten = 0;
};
constexpr std::array kPieceFigures = {
    Figure{"chunk", &Piece::chunk},
    Figure{"rank", &Piece::rank},
    Figure{"forward_ms", &Piece::forward, kPieceMillisecond},
    Figure{"backward_ms", &Piece::backward, kPieceMillisecond},
    Figure{"backward_input_ms", &Piece::input, kPieceMillisecond},
    Figure{"backward_weight_ms", &Piece::weight, kPieceMillisecond},
    Figure{"kept_bytes", &Piece::kept},
    Figure{"output_bytes", &Piece::output},
    Figure{"states_bytes", &Piece::states},
    Figure{"parameters", &Piece::parameters},
};

const Figure* figure_named(std::string_view name) {
  const auto* const found = std::ranges::find_if(kPieceFigures, [&](const Figure& each) { return each.name == name; });
  return found == kPieceFigures.end() ? nullptr : found;
}

struct Pieces {
  std::vector<Piece> list;
  std::string source;
  std::optional<std::int64_t> batch;
};

// ---- a table --------------------------------------------------------------------------------------------------------

std::vector<const Figure*> columns_of(const std::vector<CsvField>& head, const Place& line) {
  std::vector<const Figure*> columns;
  for (const CsvField& field : head) {
    const Place at{line.file, line.line, field.column};
    columns.push_back(figure_named(field.text));
    if (columns.back() == nullptr)
      throw InputError(at, fmt::format("{} is not a column of measured pieces; {}", in_quotes(field.text), kWayOut));
    if (std::ranges::count(columns, columns.back()) > 1)
      throw InputError(at, fmt::format("{} stands there twice; once is enough", in_quotes(field.text)));
  }
  return columns;
}

Piece row_of(const std::vector<const Figure*>& columns, const std::vector<CsvField>& fields, const Place& line) {
  if (fields.size() != columns.size())
    throw InputError(
        line, fmt::format("has {} values under {} columns; is the file truncated?", fields.size(), columns.size()));
  Piece piece;
  piece.place = line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (fields[i].text.empty()) continue;
    const int power = columns[i]->power_of_ten;
    const Parsed<std::int64_t> number = power == 0 ? parse_count(fields[i].text) : parse_scaled(fields[i].text, power);
    if (!number.value)
      throw InputError(Place{line.file, line.line, fields[i].column}, std::string(columns[i]->name),
                       fmt::format("{} {}", in_quotes(fields[i].text), number.why));
    piece.*(columns[i]->value) = *number.value;
  }
  return piece;
}

Pieces parse_table(std::string_view text, const std::string& file) {
  Pieces pieces;
  std::vector<const Figure*> columns;
  Place place{file, 0, 1};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(text.substr(begin, end - begin), kLineBlanks);
    begin = end + 1, ++place.line;
    if (line.empty()) continue;
    if (line.front() == '#') {
      if (columns.empty())
        pieces.source += (pieces.source.empty() ? "" : " ") + std::string(trimmed(line.substr(1), kBlanks));
      continue;
    }
    const std::vector<CsvField> fields = csv_fields(line);
    if (columns.empty())
      columns = columns_of(fields, place);
    else if (pieces.list.size() == kMostRows)
      throw InputError(place, fmt::format("is more than {} rows; leave ranks out", kMostRows));
    else
      pieces.list.push_back(row_of(columns, fields, place));
  }
  return pieces;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

std::int64_t figure_of(const JsonValue& value, int power_of_ten) {
  const double number = value.number() * std::pow(10, power_of_ten);
  if (!(number >= 0)) value.refuse("must be 0 or more");
  if (number > static_cast<double>(kLargest)) value.refuse("is too large");
  if (power_of_ten == 0 && number != std::floor(number)) value.refuse("must be a whole number");
  return std::llround(number);
}

Pieces of_document(const JsonValue& document) {
  if (document.at("schema").text() != kSchema) document.at("schema").refuse(fmt::format("is not {}", kSchema));
  for (const auto& [key, value] : document.map())
    if (key != "schema" && key != "source" && key != "batch" && key != "pieces")
      value.refuse("is not known here; keys: schema, source, batch, pieces");
  Pieces pieces;
  if (document.has("source")) pieces.source = document.at("source").text();
  if (document.has("batch")) pieces.batch = document.at("batch").whole();
  if (pieces.batch && (*pieces.batch < 1 || *pieces.batch > kMostSamples))
    document.at("batch").refuse("must be from 1 to 1000000000");
  for (const JsonValue& entry : document.at("pieces").items()) {
    Piece& piece = pieces.list.emplace_back();
    piece.where = entry.path();
    for (const auto& [key, value] : entry.map()) {
      const Figure* const figure = figure_named(key);
      if (figure == nullptr) value.refuse(fmt::format("is not a figure of a measured piece; {}", kWayOut));
      piece.*(figure->value) = figure_of(value, figure->power_of_ten);
    }
  }
  return pieces;
}

std::int64_t median(std::vector<std::int64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  const std::int64_t below = *std::max_element(values.begin(), middle);
  return below + (*middle - below) / 2;
}

// Tasks of Megatron-LM's pipeline simulation.
Pieces of_tasks(const JsonValue& document) {
  struct Passes {
    std::vector<std::int64_t> forward, backward;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Passes> chunks;  // by model_chunk_id and pp_rank
  std::int64_t ranks = 0;
  for (const auto& [name, task] : document.map()) {
    const auto number = [&](std::string_view key) {
      const std::int64_t value = task.at(key).whole();
      if (value < 0 || value > kMostChunks) task.at(key).refuse(fmt::format("must be from 0 to {}", kMostChunks));
      return value;
    };
    const std::int64_t rank = number("pp_rank"), chunk = number("model_chunk_id");
    ranks = std::max(ranks, rank + 1);
    const std::string type = task.at("task_type").text();
    if (type != "forward" && type != "backward") continue;
    Passes& passes = chunks[{chunk, rank}];
    (type == "forward" ? passes.forward : passes.backward)
        .push_back(figure_of(task.at("duration_ms"), kPieceMillisecond));
  }
  Pieces pieces;
  pieces.source = "Megatron-LM's pipeline simulation: medians over micro-batches; messages and memory are not in it";
  for (auto& [at, passes] : chunks) {
    Piece& piece = pieces.list.emplace_back();
    piece.chunk = at.first * ranks + at.second;
    piece.where = fmt::format("model_chunk_id {} of pp_rank {}", at.first, at.second);
    if (!passes.forward.empty()) piece.forward = median(passes.forward);
    if (!passes.backward.empty()) piece.backward = median(passes.backward);
  }
  return pieces;
}

Pieces parse_any(std::string_view text, const std::string& file) {
  const std::string_view all = trimmed(text, " \t\r\n");
  if (!all.starts_with('{') && !all.starts_with('[')) return parse_table(text, file);
  const Json json = parse_json(text, file);
  if (!json.is_object())
    throw InputError(Place{file, 0, 0},
                     fmt::format("is a list; write {{\"schema\": \"{}\", \"pieces\": [...]}}", kSchema));
  const bool tasks =
      !json.contains("schema") && !json.empty() && json.begin()->is_object() && json.begin()->contains("duration_ms");
  if (tasks)
    return of_tasks(
        JsonValue(json, file, "task_durations.json has maps of duration_ms, pp_rank, model_chunk_id and task_type"));
  return of_document(JsonValue(json, file, fmt::format("write schema {}", kSchema)));
}

// ---- chunks ---------------------------------------------------------------------------------------------------------

// Checks a row, and settles its three times of the backward.
void complete(Piece& piece) {
  const auto refuse = [&](const std::string& message) {
    throw InputError(piece.place, piece.where.empty() ? message : piece.where + ": " + message);
  };
  if (!piece.chunk) refuse("names no chunk; number them 0, 1, ... along the forward");
  if (*piece.chunk >= kMostChunks) refuse(fmt::format("chunk {}: at most {} are allowed", *piece.chunk, kMostChunks));
  if (!piece.forward) refuse(fmt::format("chunk {} has no forward_ms; give the time of its forward", *piece.chunk));
  if (piece.input.has_value() != piece.weight.has_value())
    refuse(
        fmt::format("chunk {} has one half of its backward; give both, backward_input_ms and backward_weight_ms, "
                    "or backward_ms alone",
                    *piece.chunk));
  if (piece.input) {
    const std::int64_t both = *piece.input + *piece.weight;  // each at most 2^62
    if (both > kLargest) refuse(fmt::format("chunk {}: the backward overflows", *piece.chunk));
    if (piece.backward && *piece.backward != both)
      refuse(fmt::format("chunk {}: backward_ms is not backward_input_ms + backward_weight_ms; leave it out",
                         *piece.chunk));
    piece.backward = both;
  }
  if (!piece.backward) refuse(fmt::format("chunk {} has no backward_ms; give the time of its backward", *piece.chunk));
  if (*piece.forward + *piece.backward > kLargest) refuse(fmt::format("chunk {}: its times overflow", *piece.chunk));
}

// Of the slowest rank and the fullest.
struct Joined {
  std::optional<Layer> layer;
  std::int64_t ranks = 0, least = kLargest, most = 0;  // ns of both passes
};

void join(Joined& chunk, const Piece& piece) {
  const auto more = [](auto& held, const auto& value) {
    if (value && (!held || held->value < *value)) held = std::decay_t<decltype(*held)>{*value};
  };
  const std::int64_t both = *piece.forward + *piece.backward;
  const bool slowest = both > chunk.most || !chunk.layer;
  chunk.least = std::min(chunk.least, both), chunk.most = std::max(chunk.most, both), ++chunk.ranks;
  if (!chunk.layer) {
    chunk.layer.emplace();
    chunk.layer->name = fmt::format("chunk{}", *piece.chunk);
    chunk.layer->place = piece.place;
    if (*piece.chunk > 0) chunk.layer->inputs = {static_cast<LayerId>(*piece.chunk - 1)};
  }
  Layer& layer = *chunk.layer;
  if (slowest) {
    layer.forward = Time{*piece.forward}, layer.backward = Time{*piece.backward};
    layer.backward_input = layer.backward_weight = {};
    if (piece.input) layer.backward_input = Time{*piece.input}, layer.backward_weight = Time{*piece.weight};
  }
  more(layer.stash, piece.kept), more(layer.states, piece.states);
  layer.activation = std::max(layer.activation, Bytes{piece.output.value_or(0)});
  layer.parameters = std::max(layer.parameters, piece.parameters.value_or(0));
}

// "" or what differs between the ranks of a chunk, and what the file does not say.
std::string in_words(const std::vector<Joined>& chunks) {
  std::int64_t ranks = 0;
  double apart = 0;
  for (const Joined& chunk : chunks) {
    ranks = std::max(ranks, chunk.ranks);
    if (chunk.least == 0 && chunk.most > 0) apart = std::numeric_limits<double>::infinity();
    if (chunk.least > 0)
      apart = std::max(apart, static_cast<double>(chunk.most) / static_cast<double>(chunk.least) - 1);
  }
  if (ranks < 2) return "";
  return fmt::format(
      "; the slowest of up to {} ranks of a chunk counts, {}", ranks,
      std::isinf(apart) ? "some of which take no time" : fmt::format("they are up to {:.1f} % apart", 100 * apart));
}

}  // namespace

Model parse_pieces(const std::string& text, const std::string& file, std::optional<std::int64_t> batch) {
  Pieces pieces = parse_any(without_byte_order_mark(text), file);
  const Place whole{file, 0, 0};
  if (pieces.list.empty()) throw InputError(whole, fmt::format("holds no measured piece; {}", kWayOut));
  std::vector<Joined> chunks;
  std::map<std::pair<std::int64_t, std::int64_t>, const Piece*> seen;
  for (Piece& piece : pieces.list) {
    if (piece.place.file.empty()) piece.place = whole;
    complete(piece);
    if (!seen.emplace(std::pair(*piece.chunk, piece.rank.value_or(0)), &piece).second)
      throw InputError(
          piece.place,
          fmt::format("{}chunk {} of rank {} stands above already; a rank has one row of each of its chunks",
                      piece.where.empty() ? "" : piece.where + ": ", *piece.chunk, piece.rank.value_or(0)));
    if (chunks.size() <= static_cast<std::size_t>(*piece.chunk))
      chunks.resize(static_cast<std::size_t>(*piece.chunk) + 1);
    join(chunks[static_cast<std::size_t>(*piece.chunk)], piece);
  }
  Model model;
  for (LayerId i = 0; i < std::ssize(chunks); ++i) {
    if (!chunks[i].layer)
      throw InputError(
          whole, fmt::format("has no chunk {}, but {}; number them 0, 1, ... along the forward", i, chunks.size() - 1));
    model.layers.push_back(*chunks[i].layer);
    if (i > 0 && model.layers[i].backward_input.has_value() != model.layers[0].backward_input.has_value())
      throw InputError(
          chunks[i].layer->place,
          fmt::format("chunk {} gives {}, unlike chunk 0; give the same of all", i,
                      model.layers[i].backward_input ? "both halves of its backward" : "its backward whole"));
  }
  model.name = printable(std::filesystem::path(file).stem().string());
  model.place = whole;
  model.batch = batch.value_or(pieces.batch.value_or(1));
  model.batch_stated = true;
  model.measured_pieces = true;
  model.source =
      fmt::format("{} measured {} of {}, sha256 {}{}{}", chunks.size(), chunks.size() == 1 ? "piece" : "pieces",
                  printable(std::filesystem::path(file).filename().string()), sha256(text),
                  pieces.source.empty() ? "" : ": " + printable(pieces.source), in_words(chunks));
  return model;
}

Model read_pieces(const std::string& path, std::optional<std::int64_t> batch) {
  return parse_pieces(read_bytes(path, kLargestPieces), path == "-" ? "standard input" : path, batch);
}

}  // namespace pipewright::io
