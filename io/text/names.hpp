// The words of YAML and of reports for the enumerations of core, both ways. One visible table per enumeration.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/answers/expectation.hpp"
#include "core/answers/sweep.hpp"
#include "core/cluster/cluster.hpp"
#include "core/cluster/measured_terms.hpp"
#include "core/model/trained_as.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::io {

template <class E>
using Name = std::pair<std::string_view, E>;

// Of an enumeration its table, below; of all else nothing.
template <class E>
inline constexpr int kNames = 0;
template <class E>
concept Enumeration = std::is_array_v<decltype(kNames<E>)>;

template <>
inline constexpr Name<Precision> kNames<Precision>[] = {{"fp32", Precision::Fp32}, {"tf32", Precision::Tf32},
                                                        {"fp16", Precision::Fp16}, {"bf16", Precision::Bf16},
                                                        {"fp8", Precision::Fp8},   {"fp4", Precision::Fp4}};
inline constexpr std::span<const Name<Precision>> kTrainingPrecisions = std::span(kNames<Precision>).first(4);
template <>
inline constexpr Name<LinkKind> kNames<LinkKind>[] = {
    {"ideal", LinkKind::Ideal}, {"mesh", LinkKind::Mesh}, {"nvswitch", LinkKind::Nvswitch}, {"pcie", LinkKind::Pcie}};
template <>
inline constexpr Name<Duplex> kNames<Duplex>[] = {{"full", Duplex::Full}, {"half", Duplex::Half}};
template <>
inline constexpr Name<Sharing> kNames<Sharing>[] = {{"max_min", Sharing::MaxMin}, {"fifo", Sharing::Fifo}};
template <>
inline constexpr Name<NicPer> kNames<NicPer>[] = {{"node", NicPer::Node}, {"device", NicPer::Device}};
template <>
inline constexpr Name<Optimizer> kNames<Optimizer>[] = {{"sgd", Optimizer::Sgd},
                                                        {"momentum", Optimizer::Momentum},
                                                        {"rmsprop", Optimizer::RmsProp},
                                                        {"adam", Optimizer::Adam},
                                                        {"muon", Optimizer::Muon}};
template <>
inline constexpr Name<Moments> kNames<Moments>[] = {{"fp32", Moments::Fp32},
                                                    {"fp16", Moments::Fp16},
                                                    {"bf16", Moments::Bf16},
                                                    {"fp8", Moments::Fp8},
                                                    {"int8", Moments::Int8}};
template <>
inline constexpr Name<MasterWeights> kNames<MasterWeights>[] = {{"fp32", MasterWeights::Fp32},
                                                                {"fp16", MasterWeights::Fp16},
                                                                {"remainder", MasterWeights::Remainder},
                                                                {"none", MasterWeights::None}};
template <>
inline constexpr Name<Sharding> kNames<Sharding>[] = {{"flat", Sharding::Flat},
                                                      {"per_parameter", Sharding::PerParameter}};
template <>
inline constexpr Name<Recompute> kNames<Recompute>[] = {
    {"none", Recompute::None}, {"selective", Recompute::Selective}, {"blocks", Recompute::Blocks},
    {"full", Recompute::Full}, {"knapsack", Recompute::Knapsack},   {"layers", Recompute::Layers}};
template <>
inline constexpr Name<Allocator> kNames<Allocator>[] = {{"exact", Allocator::Exact}, {"caching", Allocator::Caching}};
template <>
inline constexpr Name<Blocking> kNames<Blocking>[] = {
    {"passes", Blocking::Passes}, {"messages", Blocking::Messages}, {"step", Blocking::Step}};
template <>
inline constexpr Name<Execution> kNames<Execution>[] = {
    {"eager", Execution::Eager}, {"compiled", Execution::Compiled}, {"graphs", Execution::Graphs}};
template <>
inline constexpr Name<AttentionKernelName> kNames<AttentionKernelName>[] = {
    {"fa2", AttentionKernelName::Fa2}, {"fa3", AttentionKernelName::Fa3}, {"cudnn", AttentionKernelName::Cudnn}};
template <>
inline constexpr Name<ExpertProducts> kNames<ExpertProducts>[] = {{"fused", ExpertProducts::Fused},
                                                                  {"looped", ExpertProducts::Looped}};
template <>
inline constexpr Name<LowPrecision> kNames<LowPrecision>[] = {{"none", LowPrecision::None},
                                                              {"fp8_delayed", LowPrecision::Fp8Delayed},
                                                              {"fp8_tensorwise", LowPrecision::Fp8Tensorwise},
                                                              {"fp8_blockwise", LowPrecision::Fp8Blockwise},
                                                              {"mxfp8", LowPrecision::Mxfp8},
                                                              {"nvfp4", LowPrecision::Nvfp4}};
template <>
inline constexpr Name<AmaxReduction> kNames<AmaxReduction>[] = {
    {"all", AmaxReduction::All}, {"tensor_parallel", AmaxReduction::TensorParallel}, {"none", AmaxReduction::None}};
// As Megatron-LM's --recompute-modules.
template <>
inline constexpr Name<BucketRule> kNames<BucketRule>[] = {
    {"pytorch", BucketRule::PyTorch}, {"megatron", BucketRule::Megatron}, {"deepspeed", BucketRule::DeepSpeed}};
template <>
inline constexpr Name<Module> kNames<Module>[] = {{"core_attn", Module::AttentionCore},
                                                  {"layernorm", Module::Norm},
                                                  {"mlp", Module::FeedForward},
                                                  {"moe_act", Module::ExpertActivation},
                                                  {"moe", Module::Experts},
                                                  {"operators", Module::Operators},
                                                  {"mla_up_proj", Module::LatentUp},
                                                  {"shared_experts", Module::SharedExperts}};
template <>
inline constexpr Name<Provenance> kNames<Provenance>[] = {
    {"assumed", Provenance::Assumed}, {"published", Provenance::Published}, {"measured", Provenance::Measured}};
template <>
inline constexpr Name<OperatorKind> kNames<OperatorKind>[] = {{"matrix_product", OperatorKind::MatrixProduct},
                                                              {"convolution", OperatorKind::Convolution},
                                                              {"grouped_convolution", OperatorKind::GroupedConvolution},
                                                              {"attention", OperatorKind::Attention},
                                                              {"recurrent", OperatorKind::Recurrent},
                                                              {"memory", OperatorKind::Memory},
                                                              {"fp8_product", OperatorKind::Fp8Product},
                                                              {"fp8_block_product", OperatorKind::Fp8BlockProduct},
                                                              {"fp4_product", OperatorKind::Fp4Product},
                                                              {"permutation", OperatorKind::Permutation}};
template <>
inline constexpr Name<SizeTerms> kNames<SizeTerms>[] = {
    {"waves", SizeTerms::Waves}, {"work", SizeTerms::Work}, {"values", SizeTerms::Values}};
template <>
inline constexpr Name<MeasuredPass> kNames<MeasuredPass>[] = {{"forward", MeasuredPass::Forward},
                                                              {"input_gradient", MeasuredPass::InputGradient},
                                                              {"weight_gradient", MeasuredPass::WeightGradient}};
template <>
inline constexpr Name<Skips> kNames<Skips>[] = {{"hop", Skips::Hop}, {"direct", Skips::Direct}};
template <>
inline constexpr Name<GradientSync> kNames<GradientSync>[] = {
    {"overlapped", GradientSync::Overlapped}, {"at_once", GradientSync::AtOnce}, {"blocking", GradientSync::Blocking}};
template <>
inline constexpr Name<ReduceGradients> kNames<ReduceGradients>[] = {{"micro_batch", ReduceGradients::MicroBatch},
                                                                    {"step", ReduceGradients::Step}};
template <>
inline constexpr Name<ContextExchange> kNames<ContextExchange>[] = {{"ring", ContextExchange::Ring},
                                                                    {"all_gather", ContextExchange::AllGather},
                                                                    {"all_to_all", ContextExchange::AllToAll},
                                                                    {"two_level", ContextExchange::TwoLevel}};
template <>
inline constexpr Name<ContextSplit> kNames<ContextSplit>[] = {{"zigzag", ContextSplit::Zigzag},
                                                              {"contiguous", ContextSplit::Contiguous}};
template <>
inline constexpr Name<TensorOverlap> kNames<TensorOverlap>[] = {{"false", TensorOverlap::None},
                                                                {"true", TensorOverlap::Beside},
                                                                {"ring", TensorOverlap::Ring},
                                                                {"backward", TensorOverlap::Backward}};
template <>
inline constexpr Name<TensorLinks> kNames<TensorLinks>[] = {{"alone", TensorLinks::Alone},
                                                            {"shared", TensorLinks::Shared}};
template <>
inline constexpr Name<ExpertExchange> kNames<ExpertExchange>[] = {{"all_to_all", ExpertExchange::AllToAll},
                                                                  {"all_gather", ExpertExchange::AllGather},
                                                                  {"per_node", ExpertExchange::PerNode}};
template <>
inline constexpr Name<SliceLengths> kNames<SliceLengths>[] = {{"balanced", SliceLengths::Balanced},
                                                              {"even", SliceLengths::Even}};
template <>
inline constexpr Name<Barrier> kNames<Barrier>[] = {
    {"flush", Barrier::Flush}, {"none", Barrier::None}, {"post_validation", Barrier::PostValidation}};
template <>
inline constexpr Name<Pairs> kNames<Pairs>[] = {{"serial", Pairs::Serial}, {"fused", Pairs::Fused}};
template <>
inline constexpr Name<FrameworkTensors> kNames<FrameworkTensors>[] = {
    {"none", FrameworkTensors::None},
    {"megatron", FrameworkTensors::Megatron},
    {"megatron_local", FrameworkTensors::MegatronLocal}};
template <>
inline constexpr Name<GradientBuffer> kNames<GradientBuffer>[] = {{"in_place", GradientBuffer::InPlace},
                                                                  {"copied", GradientBuffer::Copied}};
template <>
inline constexpr Name<WeightGradients> kNames<WeightGradients>[] = {{"separate", WeightGradients::Separate},
                                                                    {"fused", WeightGradients::Fused},
                                                                    {"fused_kept", WeightGradients::FusedKept}};
template <>
inline constexpr Name<CostSourceKind> kNames<CostSourceKind>[] = {{"explicit", CostSourceKind::Explicit},
                                                                  {"roofline", CostSourceKind::Roofline},
                                                                  {"uniform", CostSourceKind::Uniform},
                                                                  {"profile", CostSourceKind::Profile}};
template <>
inline constexpr Name<PlacementOrder> kNames<PlacementOrder>[] = {{"pipeline", PlacementOrder::Pipeline},
                                                                  {"data", PlacementOrder::Data},
                                                                  {"megatron", PlacementOrder::Data},
                                                                  {"torchtitan", PlacementOrder::Data},
                                                                  {"llama3", PlacementOrder::Pipeline}};
template <>
inline constexpr Name<RunBackend> kNames<RunBackend>[] = {{"cpu", RunBackend::Cpu}, {"cuda", RunBackend::Cuda}};
template <>
inline constexpr Name<RunTransport> kNames<RunTransport>[] = {
    {"local", RunTransport::Local},   {"throttled", RunTransport::Throttled},
    {"staged", RunTransport::Staged}, {"peer", RunTransport::Peer},
    {"tcp", RunTransport::Tcp},       {"mpi", RunTransport::Mpi},
    {"nccl", RunTransport::Nccl}};
template <>
inline constexpr Name<RunKernels> kNames<RunKernels>[] = {{"own", RunKernels::Own}, {"library", RunKernels::Library}};
template <>
inline constexpr Name<RunLoss> kNames<RunLoss>[] = {{"cross_entropy", RunLoss::CrossEntropy}};
template <>
inline constexpr Name<RopeScalingType> kNames<RopeScalingType>[] = {{"linear", RopeScalingType::Linear},
                                                                    {"dynamic", RopeScalingType::Dynamic},
                                                                    {"llama3", RopeScalingType::Llama3},
                                                                    {"yarn", RopeScalingType::Yarn}};
template <>
inline constexpr Name<RouterScores> kNames<RouterScores>[] = {{"softmax", RouterScores::Softmax},
                                                              {"sigmoid", RouterScores::Sigmoid}};
template <>
inline constexpr Name<SweepRow::Outcome> kNames<SweepRow::Outcome>[] = {{"fits", SweepRow::Outcome::Fits},
                                                                        {"does_not_fit", SweepRow::Outcome::DoesNotFit},
                                                                        {"no_plan", SweepRow::Outcome::NoPlan},
                                                                        {"invalid", SweepRow::Outcome::Invalid}};
// Statuses that a cell can be given. `compared` is what a cell without one is.
template <>
inline constexpr Name<CellStatus> kNames<CellStatus>[] = {
    {"compared", CellStatus::Compared},         {"fitted", CellStatus::Fitted},
    {"known_miss", CellStatus::KnownMiss},      {"above_bound", CellStatus::AboveBound},
    {"analytic", CellStatus::Analytic},         {"inputs_assumed", CellStatus::InputsAssumed},
    {"not_simulated", CellStatus::NotSimulated}};

template <Enumeration E>
constexpr std::string_view name(E value) {
  for (const auto& [text, enumerator] : kNames<E>)
    if (enumerator == value) return text;
  return "?";
}

// "core_attn, mlp"
inline std::string words(Modules modules, std::string_view between) {
  std::string text;
  for (const auto& [word, module] : kNames<Module>)
    if (modules.has(module)) text.append(text.empty() ? std::string_view{} : between).append(word);
  return text;
}

}  // namespace pipewright::io
