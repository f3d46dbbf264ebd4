// The words of YAML and of reports for the enumerations of core, both ways. One visible table per enumeration.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/answers/expectation.hpp"
#include "core/cluster/cluster.hpp"
#include "core/cluster/measured_terms.hpp"
#include "core/model/trained_as.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::io {

template <class E>
using Name = std::pair<std::string_view, E>;

inline constexpr Name<Precision> kPrecisions[] = {{"fp32", Precision::Fp32}, {"tf32", Precision::Tf32},
                                                  {"fp16", Precision::Fp16}, {"bf16", Precision::Bf16},
                                                  {"fp8", Precision::Fp8},   {"fp4", Precision::Fp4}};
inline constexpr std::span<const Name<Precision>> kTrainingPrecisions = std::span(kPrecisions).first(4);
inline constexpr Name<LinkKind> kLinkKinds[] = {
    {"ideal", LinkKind::Ideal}, {"mesh", LinkKind::Mesh}, {"nvswitch", LinkKind::Nvswitch}, {"pcie", LinkKind::Pcie}};
inline constexpr Name<Duplex> kDuplexes[] = {{"full", Duplex::Full}, {"half", Duplex::Half}};
inline constexpr Name<Sharing> kSharings[] = {{"max_min", Sharing::MaxMin}, {"fifo", Sharing::Fifo}};
inline constexpr Name<NicPer> kNicPers[] = {{"node", NicPer::Node}, {"device", NicPer::Device}};
inline constexpr Name<Optimizer> kOptimizers[] = {{"sgd", Optimizer::Sgd},
                                                  {"momentum", Optimizer::Momentum},
                                                  {"rmsprop", Optimizer::RmsProp},
                                                  {"adam", Optimizer::Adam},
                                                  {"muon", Optimizer::Muon}};
inline constexpr Name<Moments> kMomentNames[] = {{"fp32", Moments::Fp32},
                                                 {"fp16", Moments::Fp16},
                                                 {"bf16", Moments::Bf16},
                                                 {"fp8", Moments::Fp8},
                                                 {"int8", Moments::Int8}};
inline constexpr Name<MasterWeights> kMasterWeightNames[] = {{"fp32", MasterWeights::Fp32},
                                                             {"fp16", MasterWeights::Fp16},
                                                             {"remainder", MasterWeights::Remainder},
                                                             {"none", MasterWeights::None}};
inline constexpr Name<Recompute> kRecomputes[] = {
    {"none", Recompute::None}, {"selective", Recompute::Selective}, {"blocks", Recompute::Blocks},
    {"full", Recompute::Full}, {"knapsack", Recompute::Knapsack},   {"layers", Recompute::Layers}};
inline constexpr Name<Allocator> kAllocators[] = {{"exact", Allocator::Exact}, {"caching", Allocator::Caching}};
inline constexpr Name<Blocking> kBlockings[] = {
    {"passes", Blocking::Passes}, {"messages", Blocking::Messages}, {"step", Blocking::Step}};
inline constexpr Name<Execution> kExecutions[] = {
    {"eager", Execution::Eager}, {"compiled", Execution::Compiled}, {"graphs", Execution::Graphs}};
inline constexpr Name<AttentionKernelName> kAttentionKernels[] = {
    {"fa2", AttentionKernelName::Fa2}, {"fa3", AttentionKernelName::Fa3}, {"cudnn", AttentionKernelName::Cudnn}};
inline constexpr Name<ExpertProducts> kExpertProducts[] = {{"fused", ExpertProducts::Fused},
                                                           {"looped", ExpertProducts::Looped}};
inline constexpr Name<LowPrecision> kLowPrecisions[] = {{"none", LowPrecision::None},
                                                        {"fp8_delayed", LowPrecision::Fp8Delayed},
                                                        {"fp8_tensorwise", LowPrecision::Fp8Tensorwise},
                                                        {"fp8_blockwise", LowPrecision::Fp8Blockwise},
                                                        {"mxfp8", LowPrecision::Mxfp8},
                                                        {"nvfp4", LowPrecision::Nvfp4}};
// As Megatron-LM's --recompute-modules.
inline constexpr Name<BucketRule> kBucketRuleNames[] = {
    {"pytorch", BucketRule::PyTorch}, {"megatron", BucketRule::Megatron}, {"deepspeed", BucketRule::DeepSpeed}};
inline constexpr Name<Module> kModuleNames[] = {{"core_attn", Module::AttentionCore},
                                                {"layernorm", Module::Norm},
                                                {"mlp", Module::FeedForward},
                                                {"moe_act", Module::ExpertActivation},
                                                {"moe", Module::Experts},
                                                {"operators", Module::Operators},
                                                {"mla_up_proj", Module::LatentUp},
                                                {"shared_experts", Module::SharedExperts}};
inline constexpr Name<Provenance> kProvenances[] = {
    {"assumed", Provenance::Assumed}, {"published", Provenance::Published}, {"measured", Provenance::Measured}};
inline constexpr Name<OperatorKind> kOperatorKindNames[] = {{"matrix_product", OperatorKind::MatrixProduct},
                                                            {"convolution", OperatorKind::Convolution},
                                                            {"grouped_convolution", OperatorKind::GroupedConvolution},
                                                            {"attention", OperatorKind::Attention},
                                                            {"recurrent", OperatorKind::Recurrent},
                                                            {"memory", OperatorKind::Memory},
                                                            {"fp8_product", OperatorKind::Fp8Product},
                                                            {"fp8_block_product", OperatorKind::Fp8BlockProduct},
                                                            {"fp4_product", OperatorKind::Fp4Product},
                                                            {"permutation", OperatorKind::Permutation}};
inline constexpr Name<SizeTerms> kSizeTerms[] = {
    {"waves", SizeTerms::Waves}, {"work", SizeTerms::Work}, {"values", SizeTerms::Values}};
inline constexpr Name<MeasuredPass> kMeasuredPasses[] = {{"forward", MeasuredPass::Forward},
                                                         {"input_gradient", MeasuredPass::InputGradient},
                                                         {"weight_gradient", MeasuredPass::WeightGradient}};
inline constexpr Name<Skips> kSkips[] = {{"hop", Skips::Hop}, {"direct", Skips::Direct}};
inline constexpr Name<GradientSync> kGradientSyncs[] = {
    {"overlapped", GradientSync::Overlapped}, {"at_once", GradientSync::AtOnce}, {"blocking", GradientSync::Blocking}};
inline constexpr Name<ReduceGradients> kReduceGradients[] = {{"micro_batch", ReduceGradients::MicroBatch},
                                                             {"step", ReduceGradients::Step}};
inline constexpr Name<ContextExchange> kContextExchanges[] = {{"ring", ContextExchange::Ring},
                                                              {"all_gather", ContextExchange::AllGather},
                                                              {"all_to_all", ContextExchange::AllToAll},
                                                              {"two_level", ContextExchange::TwoLevel}};
inline constexpr Name<ContextSplit> kContextSplits[] = {{"zigzag", ContextSplit::Zigzag},
                                                        {"contiguous", ContextSplit::Contiguous}};
inline constexpr Name<ExpertExchange> kExpertExchanges[] = {{"all_to_all", ExpertExchange::AllToAll},
                                                            {"all_gather", ExpertExchange::AllGather},
                                                            {"per_node", ExpertExchange::PerNode}};
inline constexpr Name<SliceLengths> kSliceLengths[] = {{"balanced", SliceLengths::Balanced},
                                                       {"even", SliceLengths::Even}};
inline constexpr Name<Barrier> kBarriers[] = {{"flush", Barrier::Flush}, {"none", Barrier::None}};
inline constexpr Name<Pairs> kPairsOfCells[] = {{"serial", Pairs::Serial}, {"fused", Pairs::Fused}};
inline constexpr Name<FrameworkTensors> kFrameworkTensors[] = {{"none", FrameworkTensors::None},
                                                               {"megatron", FrameworkTensors::Megatron},
                                                               {"megatron_local", FrameworkTensors::MegatronLocal}};
inline constexpr Name<GradientBuffer> kGradientBuffers[] = {{"in_place", GradientBuffer::InPlace},
                                                            {"copied", GradientBuffer::Copied}};
inline constexpr Name<WeightGradients> kWeightGradients[] = {{"separate", WeightGradients::Separate},
                                                             {"fused", WeightGradients::Fused},
                                                             {"fused_kept", WeightGradients::FusedKept}};
inline constexpr Name<CostSourceKind> kCostSources[] = {{"explicit", CostSourceKind::Explicit},
                                                        {"roofline", CostSourceKind::Roofline},
                                                        {"uniform", CostSourceKind::Uniform},
                                                        {"profile", CostSourceKind::Profile}};
inline constexpr Name<PlacementOrder> kPlacementOrders[] = {{"pipeline", PlacementOrder::Pipeline},
                                                            {"data", PlacementOrder::Data},
                                                            {"megatron", PlacementOrder::Data},
                                                            {"torchtitan", PlacementOrder::Data},
                                                            {"llama3", PlacementOrder::Pipeline}};
inline constexpr Name<RunBackend> kRunBackends[] = {{"cpu", RunBackend::Cpu}, {"cuda", RunBackend::Cuda}};
inline constexpr Name<RunTransport> kRunTransports[] = {
    {"local", RunTransport::Local},   {"throttled", RunTransport::Throttled},
    {"staged", RunTransport::Staged}, {"peer", RunTransport::Peer},
    {"tcp", RunTransport::Tcp},       {"mpi", RunTransport::Mpi},
    {"nccl", RunTransport::Nccl}};
inline constexpr Name<RunKernels> kRunKernels[] = {{"own", RunKernels::Own}, {"library", RunKernels::Library}};
inline constexpr Name<RunLoss> kRunLosses[] = {{"cross_entropy", RunLoss::CrossEntropy}};
inline constexpr Name<RopeScalingType> kRopeScalingTypes[] = {{"linear", RopeScalingType::Linear},
                                                              {"dynamic", RopeScalingType::Dynamic},
                                                              {"llama3", RopeScalingType::Llama3},
                                                              {"yarn", RopeScalingType::Yarn}};
inline constexpr Name<RouterScores> kRouterScores[] = {{"softmax", RouterScores::Softmax},
                                                       {"sigmoid", RouterScores::Sigmoid}};
// Statuses that a cell can be given. `compared` is what a cell without one is.
inline constexpr Name<CellStatus> kCellStatuses[] = {
    {"compared", CellStatus::Compared},         {"fitted", CellStatus::Fitted},
    {"known_miss", CellStatus::KnownMiss},      {"above_bound", CellStatus::AboveBound},
    {"analytic", CellStatus::Analytic},         {"inputs_assumed", CellStatus::InputsAssumed},
    {"not_simulated", CellStatus::NotSimulated}};

constexpr std::span<const Name<Precision>> names_of(Precision) {
  return kPrecisions;
}
constexpr std::span<const Name<SizeTerms>> names_of(SizeTerms) {
  return kSizeTerms;
}
constexpr std::span<const Name<MeasuredPass>> names_of(MeasuredPass) {
  return kMeasuredPasses;
}
constexpr std::span<const Name<RunBackend>> names_of(RunBackend) {
  return kRunBackends;
}
constexpr std::span<const Name<RunTransport>> names_of(RunTransport) {
  return kRunTransports;
}
constexpr std::span<const Name<RunKernels>> names_of(RunKernels) {
  return kRunKernels;
}
constexpr std::span<const Name<RunLoss>> names_of(RunLoss) {
  return kRunLosses;
}
constexpr std::span<const Name<LinkKind>> names_of(LinkKind) {
  return kLinkKinds;
}
constexpr std::span<const Name<Duplex>> names_of(Duplex) {
  return kDuplexes;
}
constexpr std::span<const Name<Sharing>> names_of(Sharing) {
  return kSharings;
}
constexpr std::span<const Name<NicPer>> names_of(NicPer) {
  return kNicPers;
}
constexpr std::span<const Name<Optimizer>> names_of(Optimizer) {
  return kOptimizers;
}
constexpr std::span<const Name<Moments>> names_of(Moments) {
  return kMomentNames;
}
constexpr std::span<const Name<MasterWeights>> names_of(MasterWeights) {
  return kMasterWeightNames;
}
constexpr std::span<const Name<Recompute>> names_of(Recompute) {
  return kRecomputes;
}
constexpr std::span<const Name<Allocator>> names_of(Allocator) {
  return kAllocators;
}
constexpr std::span<const Name<Blocking>> names_of(Blocking) {
  return kBlockings;
}
constexpr std::span<const Name<Execution>> names_of(Execution) {
  return kExecutions;
}
constexpr std::span<const Name<AttentionKernelName>> names_of(AttentionKernelName) {
  return kAttentionKernels;
}
constexpr std::span<const Name<ExpertProducts>> names_of(ExpertProducts) {
  return kExpertProducts;
}
constexpr std::span<const Name<LowPrecision>> names_of(LowPrecision) {
  return kLowPrecisions;
}
constexpr std::span<const Name<BucketRule>> names_of(BucketRule) {
  return kBucketRuleNames;
}
constexpr std::span<const Name<Module>> names_of(Module) {
  return kModuleNames;
}
constexpr std::span<const Name<Provenance>> names_of(Provenance) {
  return kProvenances;
}
constexpr std::span<const Name<OperatorKind>> names_of(OperatorKind) {
  return kOperatorKindNames;
}
constexpr std::span<const Name<Skips>> names_of(Skips) {
  return kSkips;
}
constexpr std::span<const Name<ReduceGradients>> names_of(ReduceGradients) {
  return kReduceGradients;
}
constexpr std::span<const Name<ContextExchange>> names_of(ContextExchange) {
  return kContextExchanges;
}
constexpr std::span<const Name<ContextSplit>> names_of(ContextSplit) {
  return kContextSplits;
}
constexpr std::span<const Name<GradientSync>> names_of(GradientSync) {
  return kGradientSyncs;
}
constexpr std::span<const Name<ExpertExchange>> names_of(ExpertExchange) {
  return kExpertExchanges;
}
constexpr std::span<const Name<SliceLengths>> names_of(SliceLengths) {
  return kSliceLengths;
}
constexpr std::span<const Name<Barrier>> names_of(Barrier) {
  return kBarriers;
}
constexpr std::span<const Name<Pairs>> names_of(Pairs) {
  return kPairsOfCells;
}
constexpr std::span<const Name<FrameworkTensors>> names_of(FrameworkTensors) {
  return kFrameworkTensors;
}
constexpr std::span<const Name<GradientBuffer>> names_of(GradientBuffer) {
  return kGradientBuffers;
}
constexpr std::span<const Name<WeightGradients>> names_of(WeightGradients) {
  return kWeightGradients;
}
constexpr std::span<const Name<CostSourceKind>> names_of(CostSourceKind) {
  return kCostSources;
}
constexpr std::span<const Name<PlacementOrder>> names_of(PlacementOrder) {
  return kPlacementOrders;
}
constexpr std::span<const Name<CellStatus>> names_of(CellStatus) {
  return kCellStatuses;
}
constexpr std::span<const Name<RopeScalingType>> names_of(RopeScalingType) {
  return kRopeScalingTypes;
}
constexpr std::span<const Name<RouterScores>> names_of(RouterScores) {
  return kRouterScores;
}

template <class E>
concept Enumeration = requires(E e) {
  names_of(e);
};

template <Enumeration E>
constexpr std::string_view name(E value) {
  for (const auto& [text, enumerator] : names_of(value))
    if (enumerator == value) return text;
  return "?";
}

// "core_attn, mlp"
inline std::string words(Modules modules, std::string_view between) {
  std::string text;
  for (const auto& [word, module] : kModuleNames)
    if (modules.has(module)) text.append(text.empty() ? std::string_view{} : between).append(word);
  return text;
}

}  // namespace pipewright::io
