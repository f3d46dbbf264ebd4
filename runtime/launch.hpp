// Which process of how many this one is, by the variables that launchers leave in the environment.
//
//     RANK, WORLD_SIZE                                 torchrun, and by hand
//     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE       mpirun of Open MPI
//     PMI_RANK, PMI_SIZE                               other MPIs' mpirun, srun --mpi=pmi2
//     SLURM_PROCID, SLURM_STEP_NUM_TASKS | SLURM_NTASKS   srun
//
// Launchers nest (srun starts mpirun, which starts us): the first pair of the list that is there counts. RANK beside
// OMPI_COMM_WORLD_RANK must say the same, since neither is known to be the inner one.
//                                                              tests/runtime/launch_test.cpp
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/rooms.hpp"

namespace pipewright::runtime {

struct Launch {
  int rank = 0, size = 1;
  std::string by;  // "RANK and WORLD_SIZE"
};

using Environment = std::function<const char*(const char*)>;
const char* environment(const char* name);  // of this process

// Nothing: no launcher's variables. Throws InputError where they contradict one another.
std::optional<Launch> launched(const Environment& variables = environment);

// The number of this process on its machine, by the variables that go with those above (LOCAL_RANK,
// OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID); without them the rank. Throws InputError.
int local_rank(const Environment& variables = environment);

// Where rank 0 waits for the others: MASTER_ADDR and MASTER_PORT. torchrun keeps a store of its own at that port
// (TORCHELASTIC_USE_AGENT_STORE=True): then ours is the next one. Throws InputError.
//
// What the ranks of a run know and nobody else: the text of PIPEWRIGHT_SECRET, or of the file that
// PIPEWRIGHT_SECRET_FILE names, which nobody but its owner may read. 16 characters at least: whoever listens to a meeting
// can try secrets on his own. "" where neither is set.
inline constexpr const char* kSecretVariable = "PIPEWRIGHT_SECRET";
inline constexpr const char* kSecretFileVariable = "PIPEWRIGHT_SECRET_FILE";

struct MeetingPoint {
  std::string host;
  int port = 0;
  std::string secret = {};
};
MeetingPoint meeting_point(const Environment& variables = environment);

}  // namespace pipewright::runtime
