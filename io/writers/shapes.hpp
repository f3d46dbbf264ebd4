// The forms of the documents that io writes, each defined beside its writer. `pipewright schema` has them by name
// (cli/schema.cpp).
#pragma once

#include "io/writers/shape.hpp"

namespace pipewright {

JsonShape result_shape();         // json.cpp
JsonShape ranking_shape();        // ranking.cpp
JsonShape sizing_shape();         // sizing.cpp
JsonShape sweep_shape();          // sweep.cpp
JsonShape losses_shape();         // losses.cpp
JsonShape capacity_shape();       // capacity.cpp
JsonShape comparison_shape();     // compare.cpp
JsonShape reproduction_shape();   // accuracy_json.cpp
JsonShape measured_runs_shape();  // measured_json.cpp

// Parts of several documents.
JsonShape memory_shape();    // json.cpp: bytes by category and their sum
JsonShape campaign_shape();  // campaign_lines.cpp

}  // namespace pipewright
