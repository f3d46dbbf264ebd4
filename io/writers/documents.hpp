// The JSON documents that io writes, each defined next to its writer. `pipewright schema` has their schemas by name
// (cli/schema.cpp).
#pragma once

#include "core/rooms.hpp"

namespace pipewright::core {
struct Answer;
struct MemoryBytes;
}  // namespace pipewright::core

namespace pipewright::io {

class JsonFields;
struct JsonDocument;

extern const JsonDocument kResultDocument;        // json.cpp
extern const JsonDocument kRankingDocument;       // ranking.cpp
extern const JsonDocument kSizingDocument;        // sizing.cpp
extern const JsonDocument kFoundOrderDocument;    // found_order.cpp
extern const JsonDocument kSweepDocument;         // sweep.cpp
extern const JsonDocument kLossesDocument;        // losses.cpp
extern const JsonDocument kCapacityDocument;      // capacity.cpp
extern const JsonDocument kComparisonDocument;    // compare.cpp
extern const JsonDocument kReproductionDocument;  // accuracy_json.cpp
extern const JsonDocument kMeasuredRunsDocument;  // measured_json.cpp
extern const JsonDocument kShowDocument;          // device_json.cpp

// Under the key "memory_bytes": by category, and their sum; json.cpp.
void write_memory(JsonFields& json, const MemoryBytes& bytes);
// Under the key "timeline": ops, messages and memory over time; timeline_data.cpp.
void write_timeline(JsonFields& json, const Answer& answer);

}  // namespace pipewright::io
