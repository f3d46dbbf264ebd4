// Pieces of a model that were measured elsewhere: times and bytes of each chunk of a pipeline on each of its ranks, as
// one device gives them that runs one chunk after the other.
//
// A table, with a row per chunk and rank, lines that begin with # before it are its source:
//     chunk,rank,forward_ms,backward_ms,kept_bytes,output_bytes,states_bytes,parameters
//     0,0,12.1,24.3,1811939328,67108864,9663676416,402653184
// or the same as JSON, or the task_durations.json of Megatron-LM's pipeline simulation, which has times alone:
//     {"schema": "pipewright.pieces/1", "source": "...", "batch": 1, "pieces": [{"chunk": 0, "forward_ms": 12.1, ...}]}
//     {"pp_0-mbs_0-model_chunk_0-task_type_forward": {"duration_ms": 12.1, "pp_rank": 0, "microbatch_id": 0,
//      "model_chunk_id": 0, "task_type": "forward"}, ...}                                             [MegatronSimulation26]
// Of Megatron-LM's tasks the median over micro-batches counts; chunk i of rank r of P is chunk i P + r.
//
// Ranks of a chunk wait for one another, so its slowest pass counts, and the most bytes of any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/model/graph.hpp"

namespace pipewright::io {

// `batch`: samples of a micro-batch that was measured; absent: the file's, else 1. A chain of a layer per chunk, with
// stated times. Throws InputError with the line or path of what is wrong.
Model read_pieces(const std::string& path, std::optional<std::int64_t> batch);
Model parse_pieces(const std::string& text, const std::string& file, std::optional<std::int64_t> batch);

}  // namespace pipewright::io
