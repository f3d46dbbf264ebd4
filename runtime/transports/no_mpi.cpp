// Built without Open MPI.
#include "core/check.hpp"
#include "runtime/wire.hpp"

namespace pipewright::runtime {

std::unique_ptr<Wire> mpi_wire(const Launch&) {
  throw InputError(Place{}, "run.transport",
                   "mpi: this pipewright was built without MPI; install libopenmpi-dev and openmpi-bin, run `meson "
                   "setup --reconfigure build -Dmpi=enabled` and build again, or use transport tcp");
}

}  // namespace pipewright::runtime
