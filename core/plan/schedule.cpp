#include "core/plan/schedule.hpp"

#include <array>

#include "core/plan/timeline.hpp"

namespace pipewright {
namespace {

constexpr std::array<std::string_view, kKinds> kNames = {
    "F", "B", "W", "BW", "R", "Send", "Recv", "AllReduce", "ReduceScatter", "AllGather", "Update", "Offload", "Reload"};

// The letters between stage and micro-batch in a label. PyTorch calls the whole backward B and its two halves I (input)
// and W (weight); kinds that PyTorch has no letter for get a short one of their own.
constexpr std::array<std::string_view, kKinds> kLetters = {"F",  "I",  "W",  "B", "R",   "SEND", "RECV",
                                                           "AR", "RS", "AG", "U", "OFF", "LOAD"};

}  // namespace

std::string_view name(Kind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames[index] : "?";
}

std::string label(const Op& op) {
  const auto index = static_cast<std::size_t>(op.kind);
  std::string text = std::to_string(op.virtual_stage);
  text += index < kLetters.size() ? kLetters[index] : "?";
  text += std::to_string(op.micro_batch);
  if (op.kind == Kind::AllReduce) text += "." + std::to_string(op.bucket);
  return text;
}

std::int64_t overlapped_cells(const std::vector<Op>& ops) {
  std::int64_t cells = 0;
  for (std::size_t i = 0; i < ops.size(); ++i)
    cells += ops[i].with_next && (i == 0 || !ops[i - 1].with_next) ? 1 : 0;
  return cells;
}

std::string_view name(EngineRan engine) {
  switch (engine) {
    case EngineRan::StaticOrder: return "static order";
    case EngineRan::EventQueue: return "event queue";
    case EngineRan::RealRun: return "real run";
  }
  return "";
}

}  // namespace pipewright
