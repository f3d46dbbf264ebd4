// The JSON documents of studies, each defined next to its writer; those of io are in io/writers/documents.hpp.
#pragma once

#include "core/rooms.hpp"

namespace pipewright::io {
struct JsonDocument;
}

namespace pipewright::study {

extern const JsonDocument kValidationDocument;    // comparison.cpp
extern const JsonDocument kStudyDocument;         // study.cpp: of several scenarios
extern const JsonDocument kImportedDocument;      // imported.cpp
extern const JsonDocument kStudySummaryDocument;  // accuracy.cpp

}  // namespace pipewright::study
