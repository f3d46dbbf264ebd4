#pragma once

// A room is a folder and a namespace. A room uses the names of the rooms below it as its own, and knows none of a room above it
// (docs/how-it-works/house.md; tests/layering checks the same of includes).
namespace pipewright {

namespace core {}

namespace kernels {
using namespace core;
}
namespace sim {
using namespace core;
}
namespace planner {
using namespace core;
using namespace sim;
}  // namespace planner
namespace io {
using namespace core;
}
namespace runtime {
using namespace core;
using namespace kernels;
}  // namespace runtime
namespace calibrate {
using namespace core;
using namespace kernels;
using namespace runtime;
}  // namespace calibrate
namespace study {
using namespace core;
using namespace kernels;
using namespace sim;
using namespace planner;
using namespace io;
using namespace runtime;
using namespace calibrate;
}  // namespace study
namespace python {
using namespace study;
}
namespace cli {
using namespace study;
}
namespace tests {
using namespace study;
using namespace cli;
}  // namespace tests

}  // namespace pipewright
