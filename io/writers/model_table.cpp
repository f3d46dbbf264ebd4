// `show model`: what a model is made of.
#include <algorithm>

#include <fmt/format.h>

#include "core/model/flops.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/text_table.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

// Layers first..last look alike: the same operators, or the same figures.
struct Run {
  LayerId first, last;
};

bool alike(const Layer& a, const Layer& b) {
  if (a.work >= 0 || b.work >= 0) return a.work == b.work && a.stash == b.stash;
  return a.parameters == b.parameters && a.activation == b.activation && a.stash == b.stash && a.flops == b.flops &&
         a.forward == b.forward && a.backward == b.backward;
}

std::vector<Run> runs(const Model& model) {
  std::vector<Run> found;
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    if (i > 0 && alike(model.layers[i - 1], model.layers[i]))
      found.back().last = i;
    else
      found.push_back({i, i});
  }
  return found;
}

std::string count(double value) {
  return value == 0 ? "0" : short_count(value);
}

// FLOPs in powers of ten: 1.59 T, 30.3 G.
std::string flop(double value) {
  std::string text = count(value);
  if (!text.empty() && text.back() == 'B') text.back() = 'G';
  return text;
}

TextColumn figures(std::string head) {
  return {std::move(head), false, true, {}};
}

std::string layer_table(const Model& model, int width) {
  TextColumn number = figures("layer"), name{"name", true, false, {}}, times = figures("x"),
             parameters = figures("parameters"), flops = figures("forward FLOP"), forward = figures("forward"),
             backward = figures("backward"), output = figures("output"), kept = figures("kept"),
             selective = figures("kept, selective");
  number.drop_zero = false;
  std::int64_t stash = 0, stash_selective = 0, all_flops = 0;
  double total_flops = 0;
  Time total_forward, total_backward;
  for (const Run& run : runs(model)) {
    const Layer& layer = model.layers[run.first];
    const auto n = static_cast<std::int64_t>(run.last - run.first + 1);
    number.cells.push_back(n == 1 ? std::to_string(run.first) : fmt::format("{}-{}", run.first, run.last));
    name.cells.push_back(n == 1 ? layer.name : layer.name + " .. " + model.layers[run.last].name);
    times.cells.push_back(n == 1 ? "" : std::to_string(n));
    parameters.cells.push_back(count(static_cast<double>(layer.parameters)));
    flops.cells.push_back(layer.flops ? flop(layer.flops->value) : "-");
    forward.cells.push_back(layer.forward ? short_time(*layer.forward) : "-");
    backward.cells.push_back(layer.backward ? short_time(*layer.backward) : "-");
    output.cells.push_back(short_bytes(layer.activation));
    kept.cells.push_back(short_bytes(layer.stashed()));
    const Bytes rebuilt = layer.stash_selective.value_or(layer.stashed());
    selective.cells.push_back(rebuilt == layer.stashed() ? "" : short_bytes(rebuilt));
    stash += n * layer.stashed().value, stash_selective += n * rebuilt.value;
    all_flops += layer.flops.has_value();
    total_flops += static_cast<double>(n) * layer.flops.value_or(Flops{}).value;
    total_forward += n * layer.forward.value_or(Time{}), total_backward += n * layer.backward.value_or(Time{});
  }
  number.cells.push_back("total"), name.cells.push_back(fmt::format("{} layers", model.layers.size()));
  times.cells.push_back("");
  parameters.cells.push_back(count(static_cast<double>(parameter_count(model))));
  flops.cells.push_back(all_flops > 0 ? flop(total_flops) : "-");
  forward.cells.push_back(total_forward > Time{} ? short_time(total_forward) : "-");
  backward.cells.push_back(total_backward > Time{} ? short_time(total_backward) : "-");
  output.cells.push_back("");
  kept.cells.push_back(short_bytes(Bytes{stash}));
  selective.cells.push_back(stash_selective == stash ? "" : short_bytes(Bytes{stash_selective}));
  return text_table({number, name, times, parameters, flops, forward, backward, output, kept, selective}, width);
}

constexpr const char* kind_name(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::MatrixProduct: return "matrix product";
    case OperatorKind::Convolution: return "convolution";
    case OperatorKind::GroupedConvolution: return "grouped convolution";
    case OperatorKind::Attention: return "attention";
    case OperatorKind::Recurrent: return "recurrent";
    case OperatorKind::Memory: return "memory";
    case OperatorKind::Fp8Product:
    case OperatorKind::Fp8BlockProduct:
    case OperatorKind::Fp4Product:
    case OperatorKind::Permutation: break;  // as a device runs others: of no model
  }
  return "";
}

std::string operator_tables(const Model& model, int width) {
  std::string text;
  std::vector<bool> shown(model.works.size());
  for (const Layer& layer : model.layers) {
    if (layer.work < 0 || shown[at(layer.work)]) continue;
    shown[at(layer.work)] = true;
    TextColumn name{"operator", true, false, {}}, kind{"kind", true, false, {}},
        parameters = figures("parameters"), forward = figures("forward"), input = figures("to input"),
        weight = figures("to weights"), bytes = figures("bytes");
    for (const Operator& op : model.works[at(layer.work)].operators) {
      name.cells.emplace_back(op.name);
      kind.cells.emplace_back(kind_name(op.kind));
      parameters.cells.push_back(count(static_cast<double>(op.parameters)));
      forward.cells.push_back(flop(op.forward_flops));
      input.cells.push_back(flop(op.input_flops));
      weight.cells.push_back(flop(op.weight_flops));
      bytes.cells.push_back(short_bytes(Bytes{rounded(op.forward_bytes.on_device(Bytes{4}, {}), "bytes")}));
    }
    text +=
        "\n" + layer.name +
        ", operator by operator (FLOP of the forward and of the gradients, bytes that the forward moves in fp32)\n" +
        text_table({name, kind, parameters, forward, input, weight, bytes}, width);
  }
  return text;
}

}  // namespace

std::string model_table(const Model& model, const TableOptions& options, bool operators) {
  const auto parameters = static_cast<double>(parameter_count(model));
  std::string text = fmt::format("{}: {} layers, {} parameters ({:.0f})", model.name, model.layers.size(),
                                 count(parameters), parameters);
  if (const std::int64_t active = active_parameters(model); active != parameter_count(model))
    text += fmt::format(", {} of them active per token", count(static_cast<double>(active)));
  if (const std::int64_t trained = trained_count(model); trained != parameter_count(model))
    text += fmt::format(", {} of them trained ({})", count(static_cast<double>(trained)), trained);
  text += fmt::format("\nfigures as the model states them, or in fp32, for {} sample{}", model.batch,
                      model.batch == 1 ? "" : "s");
  if (model.tokens) text += fmt::format(" of {} tokens", *model.tokens);
  if (const FlopCount flops = flop_count(model); flops.forward > 0)
    text += fmt::format("; {}FLOP forward, {}FLOP forward and backward", flop(flops.forward), flop(flops.training()));
  text += "\n\n" + layer_table(model, options.width);
  text += "  kept: from forward to backward, the layer's own output included where a layer reads it";
  text += "\n";
  if (operators) text += operator_tables(model, options.width);
  if (!model.source.empty()) text += "\n" + wrapped("source: ", model.source, options.width) + "\n";
  return text;
}

std::string flop_tables(const Model& model, const TableOptions& options) {
  TextColumn convention{"counted as", true, false, {}},
      forward = figures("forward FLOP"), training = figures("forward and backward"), token = figures("per token"),
      what{"what counts", true, false, {}};
  for (const FlopConvention& each : flop_conventions()) {
    const FlopCount counted = flop_count(model, each);
    convention.cells.emplace_back(each.name);
    forward.cells.push_back(flop(counted.forward));
    training.cells.push_back(flop(counted.training()));
    token.cells.push_back(model.tokens ? flop(counted.training() / static_cast<double>(*model.tokens)) : "");
    what.cells.emplace_back(each.summary);
  }
  TextColumn kind{"kind", true, false, {}}, of_kind = figures("forward FLOP"), share = figures("of the products");
  const FlopCount complete = flop_count(model);
  for (int k = 0; k < kOperatorKinds; ++k) {
    const double flops = complete.by_kind[at(k)];
    if (flops <= 0) continue;
    const bool product = static_cast<OperatorKind>(k) != OperatorKind::Memory;
    kind.cells.emplace_back(kind_name(static_cast<OperatorKind>(k)));
    of_kind.cells.push_back(flop(flops));
    share.cells.push_back(product ? fmt::format("{:.1f} %", 100 * flops / complete.forward) : "next to them");
  }
  std::vector<TextColumn> columns = {convention, forward, training};
  if (model.tokens) columns.push_back(token);
  columns.push_back(what);
  return "\nFLOPs of one sample\n" + text_table(columns, options.width) + "\n" +
         text_table({kind, of_kind, share}, options.width);
}

}  // namespace pipewright::io
