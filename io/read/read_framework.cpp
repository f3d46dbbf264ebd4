// training.framework of a scenario: what a framework holds beside the tensors of the operators.
#include "io/yaml/sections.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright {
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
     Need::Optional, read_as<&FrameworkMemory::tensors>, write_as<&FrameworkMemory::tensors>},
    {"gradient_buffer", "in_place | copied",
     "where gradients lie while they are reduced; copied: a bucket of their own; default: in_place for Megatron, else "
     "copied",
     Need::Optional, read_as<&FrameworkMemory::gradient_buffer>, write_as<&FrameworkMemory::gradient_buffer>},
    {"weight_gradients", "separate | fused | fused_kept",
     "Megatron: a weight's gradient is a tensor of its own, or the product adds it to the sum; fused_kept: newer "
     "Transformer Engine, a dummy gradient stays for each shape of a weight; default: fused",
     Need::Optional, read_as<&FrameworkMemory::weight_gradients>, write_as<&FrameworkMemory::weight_gradients>},
    {"logit_bytes", "whole number, 0 to 64",
     "per logit when the loss holds most: 6 bf16 and a copy in fp32, 10 with a second copy, 2 in place; default: 6 for "
     "Megatron, else 4",
     Need::Optional, read_as<&FrameworkMemory::logit_bytes, LogitBytes>, write_as<&FrameworkMemory::logit_bytes>},
    {"first_logit_bytes", "whole number, 0 to 64",
     "the same in the first step, where torch.compile tunes a fused loss: 16 to 20; Adam's states are not there yet; "
     "default: as logit_bytes",
     Need::Optional, read_as<&FrameworkMemory::first_logit_bytes, LogitBytes>,
     write_as<&FrameworkMemory::first_logit_bytes>},
    {"vocabulary_multiple", "whole number >= 1",
     "of which each device's rows of a table are a multiple: padding that takes memory; default: 128 for Megatron, "
     "else "
     "1",
     Need::Optional, read_as<&FrameworkMemory::vocabulary_multiple, AtLeast1>,
     write_as<&FrameworkMemory::vocabulary_multiple>},
    {"workspace", "size", "of kernels (cuBLAS, Transformer Engine), all the time; default: 0 B", Need::Optional,
     read_as<&FrameworkMemory::workspace>, write_as<&FrameworkMemory::workspace>},
    {"bytes_per_parameter", "size",
     "beside weight, gradient and states: a second gradient in bf16 has 2 B; default: 0 B", Need::Optional,
     read_as<&FrameworkMemory::bytes_per_parameter>, write_as<&FrameworkMemory::bytes_per_parameter>},
    {"attention_mask", "true | false", "Megatron: every batch comes with a mask of s x s per sample; default: true",
     Need::Optional, read_as<&FrameworkMemory::attention_mask>, write_as<&FrameworkMemory::attention_mask>},
    {"attention_copy", "true | false",
     "a fused attention keeps its output twice: FlashAttention-2 behind Transformer Engine, micro-batches of 2 or "
     "more; "
     "default: false",
     Need::Optional, read_as<&FrameworkMemory::attention_copy>, write_as<&FrameworkMemory::attention_copy>},
    {"fp32_softmax", "true | false", "materialised attention keeps its scores in fp32; default: false", Need::Optional,
     read_as<&FrameworkMemory::fp32_softmax>, write_as<&FrameworkMemory::fp32_softmax>},
    {"gathered_inputs", "true | false",
     "sequence parallelism: what is gathered for a product is kept for its backward; default: false", Need::Optional,
     read_as<&FrameworkMemory::gathered_inputs>, write_as<&FrameworkMemory::gathered_inputs>},
    {"gate_kept", "true | false",
     "gated feed-forward: the gate's activation is kept beside gate, value and product; default: false", Need::Optional,
     read_as<&FrameworkMemory::gate_kept>, write_as<&FrameworkMemory::gate_kept>},
    {"communicators", "whole number",
     "groups in which a device communicates, of which the device's reserve has one; default: one each of devices that "
     "share layers, of copies and of stages",
     Need::Optional, read_as<&FrameworkMemory::communicators>, write_as<&FrameworkMemory::communicators>},
    {"anchor", "map", "a small run whose memory was measured: it corrects what is predicted; default: none",
     Need::Optional, read_anchor, write_anchor},
};

}  // namespace

void read_framework(Reader& reader, const At& at, Training& training) {
  read_fields<FrameworkMemory>(reader, at, kFramework, training.framework);
}

void write_framework(YamlText& out, std::string_view key, const Training& training) {
  if (training.framework == FrameworkMemory{}) return;
  out.open(key);
  write_fields<FrameworkMemory>(out, kFramework, training.framework);
  out.close();
}

SectionDoc framework_doc() {
  return document<FrameworkMemory>("training.framework", kFramework);
}

}  // namespace pipewright
