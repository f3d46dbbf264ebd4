// Tables that layers share (Layer::tied_to): an embedding and the head behind it. Where a plan puts such layers on
// different workers, each has a copy, with gradients and optimizer states of its own.          [MegatronDDP26]
//
// Embedding, 10 blocks and a tied head on two stages: the head's stage holds a copy, both chunks are tied. On a V of two
// stages the first and the last chunk lie on one worker, which has one table.              tests/planner/tied_tables_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/graph.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

// Parameters on one device of the copy that this layer of the chunk brings with it; 0: it has no table of other workers,
// or a layer before it on the same workers has brought it.
std::int64_t table_copied(const Plan& plan, const Model& model, VirtualStageId chunk, LayerId layer);
// Of these, those that are trained: none of a frozen table (model.lora_rank).
std::int64_t table_trained(const Plan& plan, const Model& model, VirtualStageId chunk, LayerId layer);
// Of all layers of the chunk between these, either by `of_layer`.
std::int64_t tables_of(const Plan& plan, const Model& model, VirtualStageId chunk, LayerRange layers,
                       std::int64_t of_layer(const Plan&, const Model&, VirtualStageId, LayerId));

// Trained tables that several workers hold, by the layers that own them.
struct TiedTable {
  LayerId owner;
  std::int64_t parameters = 0;         // on one device
  std::vector<VirtualStageId> chunks;  // ascending
};
std::vector<TiedTable> tied_tables(const Plan& plan, const Model& model);

}  // namespace pipewright::core
