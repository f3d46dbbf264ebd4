// The layer graph for Graphviz: a box per layer, filled by stage, an edge per tensor with its bytes per micro-batch.
#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

constexpr int kDotColours = 8;  // of ColorBrewer's set2, known to Graphviz as set28

std::string node(const Model& model, LayerId id, StageId stage) {
  const Layer& layer = model.layers[id];
  std::string label = layer.name;
  if (layer.forward)
    label += fmt::format("\n{} + {}", short_time(*layer.forward), short_time(layer.backward.value_or(Time{})));
  else if (layer.flops)
    label += fmt::format("\n{}FLOP", short_count(layer.flops->value));
  if (layer.parameters > 0) label += fmt::format("\n{} parameters", short_count(static_cast<double>(layer.parameters)));
  return fmt::format("    layer{} [label={}, fillcolor={}];\n", id, dot_string(label), stage % kDotColours + 1);
}

std::string edges(const Model& model, std::int64_t samples) {
  const auto size = [&](Bytes bytes) {
    return bytes.value == 0 ? std::string() : short_bytes(scaled(bytes, samples, model.batch));
  };
  std::string text;
  for (LayerId id = 0; id < std::ssize(model.layers); ++id) {
    const Layer& layer = model.layers[id];
    if (layer.inputs.empty())
      text += fmt::format("  input -> layer{} [label={}];\n", id, dot_string(size(model.input)));
    for (const LayerId from : layer.inputs)
      text +=
          fmt::format("  layer{} -> layer{} [label={}];\n", from, id, dot_string(size(model.layers[from].activation)));
  }
  return text;
}

std::string head(const std::string& title) {
  std::string text = fmt::format("digraph model {{\n  label={};\n  labelloc=t;\n  rankdir=TB;\n", dot_string(title));
  text += "  node [shape=box, style=\"filled,rounded\", colorscheme=set28, fontname=\"sans-serif\", fontsize=10];\n";
  text += "  edge [fontname=\"sans-serif\", fontsize=9];\n";
  return text + "  input [label=\"input\", shape=plaintext, style=\"\"];\n";
}

}  // namespace

std::string dot_graph(const Answer& answer) {
  const Model& model = answer.scenario->model;
  const Plan& plan = answer.plan;
  std::string text = head(question(answer) + fmt::format("\nbytes per micro-batch of {}; layer figures for {}",
                                                         plan.micro_batch_size, model.batch));
  const std::vector<LayerRange> chunks = plan.uncut();
  for (std::size_t v = 0; v < chunks.size(); ++v) {
    const LayerRange range = chunks[v];
    const StageId stage = plan.stage_of(plan.seating().unit(static_cast<VirtualStageId>(v), 0));
    const std::string chunk = plan.virtual_stages > 1 ? fmt::format(" (chunk {})", v) : "";
    text += fmt::format("  subgraph cluster_{} {{\n    label={};\n    color=gray;\n", v,
                        dot_string(fmt::format("stage {}{}", stage, chunk)));
    for (LayerId id = range.begin; id < range.end; ++id)
      text += node(model, id, stage);
    text += "  }\n";
  }
  return text + edges(model, plan.micro_batch_size) + "}\n";
}

std::string dot_graph(const Model& model) {
  std::string text =
      head(fmt::format("{}\nfigures for {} sample{}", model.name, model.batch, model.batch == 1 ? "" : "s"));
  for (LayerId id = 0; id < std::ssize(model.layers); ++id)
    text += node(model, static_cast<LayerId>(id), 0);
  return text + edges(model, model.batch) + "}\n";
}

}  // namespace pipewright::io
