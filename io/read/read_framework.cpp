// training.framework of a scenario: what a framework holds beside the tensors of the operators.
#include "io/yaml/sections.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::io {
namespace {

struct LogitBytes {
  const char* operator()(std::int64_t value) const {
    return value >= 0 && value <= 64 ? "" : "must be 0 to 64, e.g. 6: bf16 logits and their copy in fp32";
  }
};

constexpr Field<FrameworkMemory> kFramework[] = {
    {"name", "none | megatron | megatron_local",
     "whose tensors: Megatron-core with layers of Transformer Engine, or with its own; default: none, those of the "
     "operators",
     member<&FrameworkMemory::tensors>},
    {"gradient_buffer", "in_place | copied",
     "where gradients lie while they are reduced; copied: a bucket of their own; default: in_place for Megatron, else "
     "copied",
     member<&FrameworkMemory::gradient_buffer>},
    {"weight_gradients", "separate | fused | fused_kept",
     "Megatron: a weight's gradient is a tensor of its own, or the product adds it to the sum; fused_kept: newer "
     "Transformer Engine, a dummy gradient stays for each shape of a weight; default: fused",
     member<&FrameworkMemory::weight_gradients>},
    {"logit_bytes", "whole number, 0 to 64",
     "per logit when the loss holds most: 6 bf16 and a copy in fp32, 10 with a second copy, 2 in place; default: 6 for "
     "Megatron, else 4",
     member<&FrameworkMemory::logit_bytes, LogitBytes>},
    {"first_logit_bytes", "whole number, 0 to 64",
     "the same in the first step, where torch.compile tunes a fused loss: 16 to 20; Adam's states are not there yet; "
     "default: as logit_bytes",
     member<&FrameworkMemory::first_logit_bytes, LogitBytes>},
    {"vocabulary_multiple", "whole number >= 1",
     "of which each device's rows of a table are a multiple: padding that takes memory; default: 128 for Megatron, "
     "else 1",
     member<&FrameworkMemory::vocabulary_multiple, AtLeast1>},
    {"workspace", "size", "of kernels (cuBLAS, Transformer Engine), all the time; default: 0 B",
     member<&FrameworkMemory::workspace>},
    {"bytes_per_parameter", "size",
     "in addition to weight, gradient and states: a second gradient in bf16 has 2 B; default: 0 B",
     member<&FrameworkMemory::bytes_per_parameter>},
    {"attention_mask", "true | false", "Megatron: every batch comes with a mask of s x s per sample; default: true",
     member<&FrameworkMemory::attention_mask>},
    {"attention_copy", "true | false",
     "a fused attention keeps its output twice: FlashAttention-2 behind Transformer Engine, micro-batches of 2 or "
     "more; default: false",
     member<&FrameworkMemory::attention_copy>},
    {"fp32_softmax", "true | false", "materialised attention keeps its scores in fp32; default: false",
     member<&FrameworkMemory::fp32_softmax>},
    {"gathered_inputs", "true | false",
     "sequence parallelism: what is gathered for a product is kept for its backward; default: false",
     member<&FrameworkMemory::gathered_inputs>},
    {"copied_inputs", "true | false",
     "tensor parallelism: the products of queries, keys and values each keep a copy of their input (PaddlePaddle); "
     "default: false",
     member<&FrameworkMemory::copied_inputs>},
    {"gate_kept", "true | false",
     "gated feed-forward: the gate's activation is kept in addition to gate, value and product; default: false",
     member<&FrameworkMemory::gate_kept>},
    {"communicators", "whole number",
     "groups in which a device communicates, of which the device's reserve has one; default: one each of devices that "
     "share layers, of copies and of stages",
     member<&FrameworkMemory::communicators>},
    {"end_communicators", "whole number",
     "groups more in which devices of the first and the last of several stages communicate: for tied tables "
     "(Megatron-LM, PaddlePaddle), for data (PaddleNLP); default: 0",
     member<&FrameworkMemory::end_communicators>},
    {"anchor", "map", "a small run whose memory was measured: it corrects what is predicted; default: none",
     read_anchor, write_anchor},
};

}  // namespace

void read_framework(Reader& reader, const At& at, Training& training) {
  read_section<&Training::framework, kFramework>(reader, at, training);
}

void write_framework(YamlText& out, std::string_view key, const Training& training) {
  if (training.framework != FrameworkMemory{}) write_section<&Training::framework, kFramework>(out, key, training);
}

SectionDoc framework_doc() {
  return document<FrameworkMemory>("training.framework", kFramework);
}

}  // namespace pipewright::io
