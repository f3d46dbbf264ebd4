// A model: layers in execution order, with the tensors that run between them.
//
// A layer is the unit of cost. Its figures (times, FLOPs, output and stashed bytes) hold for `Model::batch` samples; a
// micro-batch of b samples costs b / batch of each, rounded once. Parameters do not scale.
//
// A layer's figures are either stated (explicit layers, profiles) or follow from its `Work`, operator by operator
// (families, configurations, explicit `op:`). The latter depend on the precision and on how many devices share the
// layer: `settle` fills them in, once both are known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/ids.hpp"
#include "core/model/work.hpp"
#include "core/units.hpp"

namespace pipewright::core {

struct Layer {
  std::string name;
  std::optional<Time> forward;          // measured or stated times; absent: the cost source prices `flops`
  std::optional<Time> backward;         // whole backward; equals backward_input + backward_weight where those are given
  std::optional<Time> backward_input;   // gradient of the input, B of zero-bubble schedules
  std::optional<Time> backward_weight;  // gradient of the weights, W of zero-bubble schedules
  Bytes activation;                     // output tensor
  std::optional<Bytes> stash;           // kept from forward to backward; absent: the output
  std::optional<Bytes> stash_selective;              // the same under selective recomputation; absent: as without
  std::int64_t parameters = 0;                       // count, not bytes; of all devices that share the layer
  std::optional<std::int64_t> parameters_on_device;  // absent: all of them
  std::optional<std::int64_t> trained_on_device;     // of these, where others are frozen; absent: all of them
  std::optional<Bytes> states;  // weights, gradients and optimizer states on a device, as measured; absent: as counted
  std::int64_t expert_parameters = 0;  // of those on one device: of experts that others do not hold
  std::optional<Flops> flops;          // forward, of all devices that share it; the backward counts twice that
  std::vector<LayerId> inputs;         // producers of the input tensors; empty: the model's own input
  std::string op;                      // the `op:` or `ops:` of its YAML, as written back; "" for stated figures
  std::int32_t work = -1;              // index into Model::works; -1: the figures are stated
  bool block = false;  // a block of a Transformer: what `recompute: blocks` rebuilds and `equal_blocks` counts
  // False: the stash holds the output for its users' sake only; a stage without such a user sends it on and keeps
  // nothing of it.
  bool keeps_output = true;
  LayerId tied_to = -1;  // shares a table with that layer (`Work::tied_parameters`); on another stage it holds a copy
  Place place;

  // As measured or stated, so that nothing else prices it.
  bool states_times() const { return forward || backward || backward_input || backward_weight; }
  Bytes stashed() const { return stash.value_or(activation); }
  std::int64_t held() const { return parameters_on_device.value_or(parameters); }  // by one device
  // Of those: with gradients and optimizer states. Of experts that others do not hold none where some are frozen.
  std::int64_t trained() const { return trained_on_device.value_or(held()); }
  std::int64_t trained_experts() const { return trained_on_device ? 0 : expert_parameters; }
};

struct Model {
  std::string name;
  std::int64_t batch = 1;  // samples for which the layers' figures hold
  bool batch_stated =
      false;  // given in the file or derived from a profile: the report warns when micro-batches are far from it
  Indexed<LayerId, Layer> layers;  // topological order: every input stands before its user
  std::vector<LayerId> order;      // of `layers`: their numbers in the model as it was given; empty: that order
  std::vector<Work> works;         // distinct works; layers that compute the same share one
  // What the model was built from, as YAML keys and values to be written back: {"family", "vgg16"}, ...
  std::vector<std::pair<std::string, std::string>> form;
  std::vector<std::int64_t> input_shape;  // of one sample, for explicit `op:` layers
  Amount input_amount;                    // of `input`, where the model is built from operators
  std::optional<std::int64_t> tokens;     // per sample, where the model says so (sequence length)
  Bytes input;                            // bytes of the model's own input tensor for `batch` samples; 0 when unknown
  bool measured_pieces = false;           // its layers are chunks that were measured elsewhere, one by one
  std::string source;                     // where the figures come from, one line per entry, for the report
  Place place;

  // Defined in the .cpp: compiled once, not in each file that includes this.
  Model();
  Model(const Model&);
  Model(Model&&) noexcept;
  Model& operator=(const Model&);
  Model& operator=(Model&&) noexcept;
  ~Model();
};

// Fills in the figures of every layer that has a work, for `per_value` bytes per activation and the split:
//     activation       outputs on one device          stash     kept tensors (and without attention cores)
//     flops            product_flops, whole           parameters, those on a device and trained there, keeps_output
// and Model::input. Sizes are rounded up to whole bytes. Layers without a work stay as they are.
// Throws InputError when `split.degree` > 1 and a layer with parameters cannot be split: at `asked`, where the degree is
// given, or at the layer.
void settle(Model& model, Bytes per_value, TensorParallel split, const Place& asked = {});

// Whether selective recomputation of these modules repeats anything: fused attention and layers with stated figures have
// no attention core.                                                                        [Korthikanti22] section 5
bool has_any(const Model& model, Modules modules);
// Whether it keeps anything less.
bool drops_any(const Model& model, Modules modules);

// Whether tokens are routed to experts, and whether there are experts that every token uses.
bool has_experts(const Model& model);
bool has_shared_experts(const Model& model);
// Whether devices can share the tokens of a sample: all layers are operators, some attend, none needs all tokens.
bool has_shareable_sequences(const Model& model);

// Sum of all parameters (a count), and of those that training changes.
std::int64_t parameter_count(const Model& model);
std::int64_t trained_count(const Model& model);

// Sorts layers topologically, always taking the ready layer with the smallest file position, and renumbers `inputs`.
// A chain keeps its order. Throws InputError naming the layers of a cycle.
std::vector<Layer> in_topological_order(std::vector<Layer> layers);

// The model with its layers in another order: order[i] is the layer that comes to stand at place i, and its inputs and
// tied tables follow. Aborts (our bug) unless every layer is named once and none stands before one of its inputs.
// `Model::order` of the result counts in the model as it was given, whatever order it comes in.
Model reordered(const Model& model, const std::vector<LayerId>& order);

// The model in the order in which it was given.
Model as_given(const Model& model);

// Bytes over every cut 0..L (for `model.batch` samples). Entry c: the tensors that are produced before layer c and used
// at or after it, each once, however many users it has; 0 at 0 and L. One pass over the edges, O(L + E).
std::vector<Bytes> bytes_over_cuts(const Model& model);

// The same with other sizes for the tensors (output of layer i: tensor[i]), e.g. those of one micro-batch.
std::vector<Bytes> bytes_over_cuts(const Model& model, const std::vector<Bytes>& tensor);

}  // namespace pipewright::core
