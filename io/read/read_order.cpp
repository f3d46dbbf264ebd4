// plan.order: in which order stages take the layers.
//
//   order: [0..3, branch_b, 4..6]      by number in the model as it is given, by name, or from one to another
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "io/text/quantity.hpp"
#include "io/text/trimmed.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

std::size_t at_place(LayerId layer) {
  return static_cast<std::size_t>(layer);
}

class OrderReader {
 public:
  OrderReader(Reader& reader, const Model& model) : reader_(reader), model_(model), places_(model.layers.size(), -1) {}

  // Empty: errors have been added.
  std::vector<LayerId> read(const At& at) {
    const std::size_t before = reader_.errors.count();
    for (std::size_t i = 0; i < at.yaml.list.size() && !reader_.errors.full(); ++i)
      read_entry(at.entry(i));
    if (reader_.errors.count() == before && order_.size() < model_.layers.size()) {
      const auto missing = std::ranges::find(places_, LayerId{-1}) - places_.begin();
      reader_.errors.add(at.yaml.place, path(at),
                         fmt::format("names {} of the model's {} layers; {} is missing; name each layer once",
                                     order_.size(), model_.layers.size(), in_words(static_cast<LayerId>(missing))));
    }
    if (reader_.errors.count() != before) order_.clear();
    return order_;
  }

 private:
  std::string in_words(LayerId layer) const {
    return fmt::format("{} (layer {})", in_quotes(model_.layers[layer].name), layer);
  }

  std::optional<LayerId> layer(std::string_view text, bool quoted) const {
    if (const auto named = by_name_.find(text); named != by_name_.end()) return static_cast<LayerId>(named->second);
    const Parsed<std::int64_t> number = quoted ? Parsed<std::int64_t>{} : parse_count(text);
    if (!number.value || *number.value < 0 || *number.value >= std::ssize(model_.layers)) return std::nullopt;
    return static_cast<LayerId>(*number.value);
  }

  void read_entry(const At& at) {
    const std::string* text = scalar(reader_, at, "a layer");
    if (text == nullptr) return;
    std::optional<LayerId> first = layer(*text, at.yaml.quoted), last = first;
    if (const auto dots = text->find(".."); !first && dots != std::string::npos) {
      first = layer(trimmed(std::string_view(*text).substr(0, dots), kSpaces), false);
      last = layer(trimmed(std::string_view(*text).substr(dots + 2), kSpaces), false);
    }
    if (!first || !last)
      return reader_.error(at, fmt::format("is not a layer of the model; write a layer's name, its number from 0 to {} "
                                           "in the model as it is given, or a range: 0..{}",
                                           model_.layers.size() - 1, model_.layers.size() - 1));
    if (*last < *first) return reader_.error(at, "runs backwards; write the lower number first");
    for (LayerId each = *first; each <= *last; ++each)
      if (!add(at, each)) return;
  }

  bool add(const At& at, LayerId layer) {
    const auto refuse = [&](const std::string& what) {
      reader_.errors.add(at.yaml.place, path(at), fmt::format("{} {}", in_words(layer), what));
      return false;
    };
    if (places_[at_place(layer)] >= 0) return refuse("stands here twice; name each layer once");
    for (const LayerId input : model_.layers[layer].inputs)
      if (places_[at_place(input)] < 0)
        return refuse(fmt::format("stands before {}, whose output it uses; name it behind", in_words(input)));
    places_[at_place(layer)] = static_cast<LayerId>(order_.size());
    order_.push_back(layer);
    return true;
  }

  Reader& reader_;
  const Model& model_;
  std::unordered_map<std::string_view, std::int64_t> by_name_ = layers_by_name(model_);  // looked up only
  std::vector<LayerId> places_, order_;
};

}  // namespace

std::unordered_map<std::string_view, std::int64_t> layers_by_name(const Model& model) {
  std::unordered_map<std::string_view, std::int64_t> by_name;
  for (LayerId i = 0; i < std::ssize(model.layers); ++i)
    by_name.emplace(model.layers[i].name, i);
  return by_name;
}

void read_order(Reader& reader, const At& at, PlanRequest& plan) {
  plan.order.place = at.yaml.place;
  LayerOrder& order = plan.order.value;
  if (at.yaml.is(Yaml::Type::List)) {
    if (reader.model == nullptr || reader.model->layers.empty()) return;  // the model has errors of its own
    order.layers = OrderReader(reader, *reader.model).read(at);
    if (!order.layers.empty()) order.kind = LayerOrder::Kind::Listed;
    return;
  }
  if (at.yaml.is(Yaml::Type::Scalar) && (at.yaml.scalar == "model" || at.yaml.scalar == "graph")) {
    order.kind = at.yaml.scalar == "graph" ? LayerOrder::Kind::Graph : LayerOrder::Kind::Model;
    return;
  }
  reader.error(at,
               "is not an order; write model, graph, or a list of all layers by name, number or range: [0..3, 5, 4]");
}

void write_order(YamlText& out, std::string_view key, const PlanRequest& plan) {
  const LayerOrder& order = plan.order.value;
  if (order.layers.empty() || std::ranges::is_sorted(order.layers))
    return out.line(key, order.unsettled() ? "graph" : "model");
  std::string list;
  for (std::size_t i = 0; i < order.layers.size();) {
    std::size_t end = i + 1;
    while (end < order.layers.size() && order.layers[end] == order.layers[end - 1] + 1)
      ++end;
    list += list.empty() ? "" : ", ";
    list += end - i > 1 ? fmt::format("{}..{}", order.layers[i], order.layers[end - 1])
                        : fmt::format("{}", order.layers[i]);
    i = end;
  }
  out.line(key, "[" + list + "]");
}

}  // namespace pipewright::io
