// The forms of the documents that the command line writes itself, each defined beside its writer; those of io are in
// io/writers/shapes.hpp.
#pragma once

#include "io/writers/shape.hpp"

namespace pipewright {

JsonShape validation_shape();     // comparison.cpp
JsonShape study_shape();          // study.cpp: of several scenarios
JsonShape imported_shape();       // imported_outputs.cpp
JsonShape log_shape();            // imported_log.cpp: a part of it
JsonShape trace_shape();          // imported_trace.cpp: likewise
JsonShape study_summary_shape();  // accuracy.cpp
JsonShape show_shape();           // device_json.cpp

}  // namespace pipewright
