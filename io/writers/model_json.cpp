#include "io/writers/model_json.hpp"

#include "core/model/flops.hpp"
#include "io/names.hpp"
#include "io/writers/json_document.hpp"
#include "io/writers/shapes.hpp"

namespace pipewright {
namespace {

void write_layers(JsonText& json, const Model& model) {
  json.key("layers").open('[');
  for (const Layer& layer : model.layers) {
    json.open('{').field("name", layer.name).field("inputs", layer.inputs).field("parameters", layer.parameters);
    json.field("forward_flop", layer.flops ? std::optional(layer.flops->value) : std::nullopt);
    json.field("forward_s", layer.forward).field("backward_s", layer.backward).field("output_bytes", layer.activation);
    json.field("kept_bytes", layer.stashed());
    json.field("kept_selective_bytes", layer.stash_selective.value_or(layer.stashed()));
    json.field("work", layer.work < 0 ? std::nullopt : std::optional<std::int64_t>(layer.work)).close();
  }
  json.close();
}

// By number: what `work` of a layer says.
void write_works(JsonText& json, const Model& model) {
  json.key("works").open('[');
  for (const Work& work : model.works) {
    json.open('[');
    for (const Operator& op : work.operators) {
      json.open('{').field("operator", std::string(op.name)).field("kind", name(op.kind));
      json.field("parameters", op.parameters).field("forward_flop", op.forward_flops);
      json.field("input_gradient_flop", op.input_flops).field("weight_gradient_flop", op.weight_flops);
      json.field("forward_bytes_fp32", Bytes{rounded(op.forward_bytes.on_device(Bytes{4}, {}), "bytes")}).close();
    }
    json.close();
  }
  json.close();
}

void write_flops(JsonText& json, const Model& model) {
  json.key("flops_of_a_sample").open('{').key("counted_as").open('{');
  for (const FlopConvention& each : flop_conventions()) {
    const FlopCount counted = flop_count(model, each);
    json.key(each.name).open('{').field("forward", counted.forward).field("forward_and_backward", counted.training());
    json.key("per_token");
    model.tokens ? json.value(counted.training() / static_cast<double>(*model.tokens)) : json.null();
    json.field("what_counts", each.summary).close();
  }
  json.close().key("forward_by_kind").open('{');
  const FlopCount complete = flop_count(model);
  for (const auto& [text, kind] : kOperatorKindNames)
    json.field(text, complete.by_kind[static_cast<std::size_t>(kind)]);
  json.close().close();
}

}  // namespace

std::string model_json(const Model& model, const ModelParts& parts, const std::vector<std::string>& written) {
  JsonText json;
  open_document(json, "pipewright.layers/1");
  json.field("name", model.name).field("source", model.source).field("batch", model.batch);
  json.field("tokens", model.tokens).field("parameters", parameter_count(model));
  json.field("active_parameters", active_parameters(model)).field("input_bytes", model.input);
  write_layers(json, model);
  if (parts.operators) write_works(json, model);
  if (parts.flops) write_flops(json, model);
  json.field("written", written).close();
  return std::move(json).text();
}

JsonShape layers_shape() {
  using namespace shape;
  const JsonShape layer = object({{"name", text()},
                                  {"inputs", list(whole())},
                                  {"parameters", whole()},
                                  {"forward_flop", maybe(number())},
                                  {"forward_s", maybe(number())},
                                  {"backward_s", maybe(number())},
                                  {"output_bytes", whole()},
                                  {"kept_bytes", whole()},
                                  {"kept_selective_bytes", whole()},
                                  {"work", maybe(whole())}});
  const JsonShape op = object({{"operator", text()},
                               {"kind", of_names(kOperatorKindNames)},
                               {"parameters", whole()},
                               {"forward_flop", number()},
                               {"input_gradient_flop", number()},
                               {"weight_gradient_flop", number()},
                               {"forward_bytes_fp32", whole()}});
  const JsonShape count = object({{"forward", number()},
                                  {"forward_and_backward", number()},
                                  {"per_token", maybe(number())},
                                  {"what_counts", text()}});
  std::vector<JsonMember> conventions, kinds;
  for (const FlopConvention& each : flop_conventions())
    conventions.emplace_back(each.name, count);
  for (const auto& each : kOperatorKindNames)
    kinds.emplace_back(each.first, number());
  const JsonShape flops =
      object({{"counted_as", object(std::move(conventions))}, {"forward_by_kind", object(std::move(kinds))}});
  return document("pipewright.layers/1", {{"name", text()},
                                          {"source", text()},
                                          {"batch", whole()},
                                          {"tokens", maybe(whole())},
                                          {"parameters", whole()},
                                          {"active_parameters", whole()},
                                          {"input_bytes", whole()},
                                          {"layers", list(layer)},
                                          {"works?", list(list(op))},
                                          {"flops_of_a_sample?", flops},
                                          {"written", list(text())}});
}

}  // namespace pipewright
