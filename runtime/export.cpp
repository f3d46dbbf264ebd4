#include "runtime/export.hpp"

#include <cstring>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "core/model/step_name.hpp"

namespace pipewright::runtime {
namespace {

using Dimensions = std::vector<std::int64_t>;

Dimensions dimensions(const Shape& shape) {
  return {shape.dim.begin(), shape.dim.begin() + shape.rank};
}

// As PyTorch's modules have it.
Dimensions shape_of(const Program& program, const ProgramStep& step, const ParameterTensor& parameter) {
  const Shape &in = program.tensors[static_cast<std::size_t>(step.inputs[0])].shape,
              &out = program.tensors[static_cast<std::size_t>(step.output)].shape;
  if (parameter.name == "weight") {
    if (const auto* linear = std::get_if<Linear>(&step.spec))
      return {linear->features, parameter.elements / linear->features};
    if (const auto* grouped = std::get_if<GroupedLinear>(&step.spec))
      return {grouped->groups, grouped->features, in[in.rank - 1]};
    if (const auto* conv = std::get_if<Conv2d>(&step.spec))
      return {conv->channels, in[0] / conv->groups, conv->kernel_height, conv->kernel_width};
    if (std::holds_alternative<Embedding>(step.spec) || std::holds_alternative<LearnedTable>(step.spec))
      return {parameter.elements / out[out.rank - 1], out[out.rank - 1]};
  }
  if (const auto* grouped = std::get_if<GroupedLinear>(&step.spec)) return {grouped->groups, grouped->features};
  return {parameter.elements};
}

class SafetensorsFile {
 public:
  // Room for the values of a tensor; eight bytes each where they take eight, so that all are aligned.
  template <class T>
  T* add(const std::string& name, const char* type, const Dimensions& shape) {
    std::size_t elements = 1;
    for (const std::int64_t dimension : shape)
      elements *= static_cast<std::size_t>(dimension);
    const std::size_t begin = values_.size();
    values_.resize(begin + elements * sizeof(T));
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header_.empty() ? "" : ",",
                           name, type, fmt::join(shape, ","), begin, values_.size());
    PP_CHECK(begin % sizeof(T) == 0);
    return reinterpret_cast<T*>(values_.data() + begin);
  }
  std::string text() const {
    std::string header = "{" + header_ + "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    std::string length;
    for (std::size_t byte = 0; byte < 8; ++byte)
      length += static_cast<char>(header.size() >> (8 * byte) & 0xff);
    return length + header + values_;
  }

 private:
  std::string header_, values_;
};

Dimensions of_all(std::int64_t samples, Dimensions one) {
  one.insert(one.begin(), samples);
  return one;
}

void add_weights(SafetensorsFile& file, const ChunkCode& code, std::uint64_t seed) {
  std::map<LayerId, int> number;
  for (const CodeStep& step : code.steps)
    for (int p = 0; p < step.parameters; ++p) {
      const CodeParameter& parameter = code.parameters[static_cast<std::size_t>(step.first_parameter + p)];
      const auto at = static_cast<std::size_t>(step.step - step.program->steps.data());
      auto* const values = file.add<float>(
          fmt::format("layers.{}.{}.{}", step.layer, step_name(*step.program, at), parameter.tensor.name), "F32",
          shape_of(*step.program, *step.step, parameter.tensor));
      const int n = number[step.layer]++;
      for (std::int64_t i = 0; i < parameter.tensor.elements; ++i)
        values[i] = initial_value(parameter.tensor, seed, parameter.layer, n, i);
    }
}

}  // namespace

std::string exported(const RunPlan& run, const Model& model, const Data& data, const RunSettings& settings,
                     const std::vector<WorkerResult>& workers) {
  SafetensorsFile file;
  auto* const loss = file.add<double>("loss", "F64", {settings.steps});
  for (int step = 0; step < settings.steps; ++step)
    loss[step] = loss_of(workers, static_cast<std::size_t>(step));

  const SampleShape shape = sample_shape(run.code);
  const std::int64_t samples = settings.steps * run.plan->global_batch_size;
  Dimensions input, labels;
  for (const Layer& layer : model.layers) {
    const Program& program = *model.works[static_cast<std::size_t>(layer.work)].program.get();
    const auto shape_at = [&](std::int32_t tensor) {
      return dimensions(program.tensors[static_cast<std::size_t>(tensor)].shape);
    };
    if (layer.inputs.empty()) input = shape_at(program.inputs[0]);
    if (!program.steps.empty() && program.steps.back().operation == "cross_entropy")
      labels = shape_at(program.steps.back().inputs[0]), labels.pop_back();
  }
  auto* const to_labels = file.add<std::int64_t>("labels", "I64", of_all(samples, labels));
  for (std::int64_t sample = 0; sample < samples; ++sample)
    read_labels(data, shape, sample, to_labels + sample * shape.label_rows);
  const auto read_all = [&](auto* const to) {
    for (std::int64_t sample = 0; sample < samples; ++sample)
      read_input(data, shape, sample, to + sample * shape.values);
  };
  if (shape.indices)
    read_all(file.add<std::int64_t>("input", "I64", of_all(samples, input)));
  else
    read_all(file.add<float>("input", "F32", of_all(samples, input)));

  for (const ChunkCode& code : run.code)
    add_weights(file, code, settings.seed);
  return file.text();
}

}  // namespace pipewright::runtime
