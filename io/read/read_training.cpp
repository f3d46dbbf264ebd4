// training: of a scenario.
#include <string>
#include <string_view>
#include <vector>

#include "io/read/read_scenario.hpp"
#include "io/yaml/sections.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::io {
namespace {

struct StageOfZero {
  const char* operator()(std::int64_t zero) const {
    return zero >= 0 && zero <= 3 ? ""
                                  : "is not a stage of ZeRO; write 0, 1 (optimizer states divided), 2 (and gradients) "
                                    "or 3 (and weights)";
  }
};

void read_zero(Reader& reader, const At& at, Training& training) {
  training.zero_place = at.yaml.place;
  read_lawful<StageOfZero>(reader, at, training.zero);
}

// One in which weights and activations can be: fp8 and fp4 are of products alone.
template <auto Member>
void read_precision(Reader& reader, const At& at, Training& training) {
  const std::string* text = scalar(reader, at, "a name");
  if (!text) return;
  std::vector<std::string_view> known;
  for (const auto& [word, precision] : kTrainingPrecisions) {
    if (word == *text) {
      training.*Member = precision;
      return;
    }
    known.push_back(word);
  }
  if (*text == name(Precision::Fp8) || *text == name(Precision::Fp4))
    return reader.error(
        at,
        "is what products compute in, not what is trained in; write precision: bf16, and low_precision: "
        "fp8_tensorwise, fp8_delayed, fp8_blockwise, mxfp8 or nvfp4");
  reader.errors.add(at.yaml.place, path(at), unknown_value(*text, known));
}

constexpr Field<Training> kTraining[] = {
    {"global_batch_size", "whole number >= 1",
     "samples per optimizer step = micro_batch_size * micro_batches * plan.data_parallel; two of the three are given; "
     "where plan says auto, this one will do",
     member<&Training::global_batch_size, AtLeast1>},
    {"micro_batch_size", "whole number >= 1", "samples of one micro-batch",
     member<&Training::micro_batch_size, AtLeast1>},
    {"micro_batches", "whole number >= 1", "M, per copy of the pipeline, over all replicas",
     member<&Training::micro_batches, AtLeast1>},
    {"ragged", "true | false", "allow a smaller last micro-batch; default: false", member<&Training::ragged>},
    {"precision", "fp32 | tf32 | fp16 | bf16",
     "of weights, gradients and the peak rate; sizes of activations and stashes are taken as stated; default: fp32",
     read_precision<&Training::precision>, write_as<&Training::precision>},
    {"optimizer", "sgd | momentum | rmsprop | adam | muon",
     "its state takes memory; muon: matrices of the layers by orthogonalised momentum, embedding, head and norms by "
     "adam; "
     "default: sgd",
     member<&Training::optimizer>},
    {"moments", "fp32 | fp16 | bf16 | fp8 | int8",
     "of the optimizer's moments (Megatron-LM's exp_avg_dtype and exp_avg_sq_dtype; int8: 8-bit Adam); default: fp32",
     changed<&Training::moments>},
    {"master_weights", "fp32 | fp16 | remainder | none",
     "copies of 16-bit weights that the optimizer updates; remainder: of a bf16 weight the 16 bits that it lacks "
     "(Transformer Engine's store_param_remainders); default: fp32",
     changed<&Training::master_weights>},
    {"gradient_precision", "fp32 | tf32 | fp16 | bf16",
     "of the accumulated gradients; fp32 with precision bf16 and adam: 18 B per parameter; default: as precision",
     read_precision<&Training::gradient_precision>, write_as<&Training::gradient_precision>},
    {"low_precision", "none | fp8_delayed | fp8_tensorwise | fp8_blockwise | mxfp8 | nvfp4",
     "of the products of linear layers and experts, in place of precision, by Transformer Engine's recipes; attention, "
     "head and routers stay as they are (roofline; device.peak.fp8 or fp4); default: none",
     changed<&Training::low_precision>},
    {"amax_reduction", "all | tensor_parallel | none",
     "of the largest values that low_precision: fp8_delayed scales by, behind every pass of a chunk: among all devices "
     "that hold it, those of tensor and context parallelism (Megatron-LM's --tp-only-amax-red), or nobody; default: "
     "all",
     changed<&Training::amax_reduction>},
    {"low_precision_weights", "true | false",
     "weights of those layers are kept and gathered in the fewer bits alone (Megatron-LM's --fp8-param-gather); "
     "default: "
     "false",
     changed<&Training::low_precision_weights>},
    {"offload_optimizer", "number from 0 to 1",
     "share of the optimizer's states, and of its work, that is left to the host (Megatron-LM's "
     "optimizer_offload_fraction, "
     "DeepSpeed's offload_optimizer); needs host_link and host_update of the device, and cost: roofline; default: 0",
     changed<&Training::offload_optimizer, FromZeroToOne>},
    {"offload_weights", "true | false",
     "shards of weights and gradients lie in the host's memory, too, from where weights come before each gather "
     "(PyTorch's "
     "CPUOffloadPolicy, DeepSpeed's offload_param); needs zero: 3 and offload_optimizer: 1; default: false",
     changed<&Training::offload_weights>},
    {"zero", "0 | 1 | 2 | 3",
     "1: optimizer states and their update are divided among the copies and replicas of a stage; 2: gradients, too; 3: "
     "weights, too, gathered unit by unit where they are read (FSDP); default: 0, and auto with plan: auto",
     read_zero, write_as<&Training::zero>},
    {"sharding", "flat | per_parameter",
     "of weights that are divided (zero: 3): flat, in buffers in the training's precision that are sent as they are, "
     "masters "
     "beside them (DeepSpeed, Megatron-FSDP); per_parameter: each parameter's in fp32, which is its own master, cast "
     "and "
     "copied into a buffer to be sent and out of it (FSDP2, torchtitan); default: flat",
     changed<&Training::sharding>},
    {"update_bytes", "size",
     "that the optimizer step moves per parameter (roofline); default: weight, gradient and states read once, weight "
     "and states written once",
     member<&Training::update_bytes, DeviceRate>},
    {"attention_kernel", "fa2 | fa3 | cudnn",
     "of fused attention (model.attention: flash), on devices that state curves for it; default: the device's first",
     member<&Training::attention_kernel>},
    {"execution", "eager | compiled | graphs",
     "what the host does per kernel (device.host): eager runs Python and autograd, compiled (torch.compile) launches "
     "alone, graphs replays CUDA graphs; the kernels are the same: fusion of elementwise operators is not modelled; "
     "default: eager",
     changed<&Training::execution>},
    {"checkpoint_early_stop", "true | false",
     "of recomputed layers (blocks, layers, knapsack, operators): the repetition stops where the backward has what it "
     "reads, without the last product, as PyTorch's checkpoints without re-entry do; default: false, as Megatron-LM "
     "and "
     "torchtitan",
     changed<&Training::checkpoint_early_stop>},
    {"clip_grad_norm", "number > 0",
     "the most that the norm over all gradients may be; larger ones are scaled down, for which every stage must know "
     "the "
     "norm before it updates (with a flush: an all-reduce of all workers); written into launch files; default: what a "
     "framework does by itself",
     member<&Training::clip_grad_norm, Positive>},
    {"expert_products", "fused | looped",
     "of experts, on devices with efficiency.matrix_product.tiles, in fp16 and bf16: one call for all, or one each; "
     "default: fused",
     changed<&Training::expert_products>},
    {"sequence_length", "whole number >= 1", "tokens per sample, for tokens/s",
     member<&Training::sequence_length, AtLeast1>},
    {"framework", "map", "what a framework holds in addition to the tensors of the operators; default: nothing",
     read_framework, write_framework},
};

// Fields left to the planner.
constexpr std::string_view kMayBeOpenInTraining[] = {"micro_batch_size", "micro_batches", "zero"};

}  // namespace

void read_training_section(Reader& reader, const At& at, Training& training) {
  training.place = at.yaml.place;
  const Yaml closed = take_open_fields(reader, at, kMayBeOpenInTraining, training.open);
  read_fields<Training>(reader, At{closed, at.parent, at.key, at.item}, kTraining, training);
  check_open_fields<Training>(reader, at, kTraining, training.open);
}

void write_training_section(YamlText& out, const Training& training) {
  write_fields<Training>(out, kTraining, training, training.open);
}

std::vector<SectionDoc> training_docs() {
  return {document<Training>("training", kTraining), framework_doc(), anchor_doc()};
}

}  // namespace pipewright::io
