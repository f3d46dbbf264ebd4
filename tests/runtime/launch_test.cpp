#include "runtime/launch.hpp"

#include <map>
#include <string>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "core/check.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

using Variables = std::map<std::string, std::string>;

Environment of(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}
std::optional<Launch> launched_with(const Variables& variables) {
  return launched(of(variables));
}
void check(const Variables& variables, int rank, int size) {
  const auto launch = launched_with(variables);
  REQUIRE(launch);
  CHECK(launch->rank == rank);
  CHECK(launch->size == size);
}

}  // namespace

TEST_CASE("Without a launcher's variables there is no launch; an allocation's size alone makes no rank") {
  CHECK(!launched_with({}));
  CHECK(!launched_with({{"SLURM_NTASKS", "4"}}));
}

TEST_CASE("Ranks are those of torchrun, Open MPI, PMI or srun") {
  check({{"RANK", "1"}, {"WORLD_SIZE", "4"}}, 1, 4);
  check({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}}, 2, 3);
  check({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, 0, 2);
  check({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}}, 5, 8);
  check({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}}, 1, 2);
}

TEST_CASE("The inner launcher counts: srun starts mpirun's daemons, mpirun the ranks") {
  check({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, 3,
        4);
}

TEST_CASE("Contradictions of rank and size are errors that name the variables") {
  CHECK_THROWS_WITH_AS(launched_with({{"RANK", "0"}}),
                       "RANK is set in the environment and WORLD_SIZE is not; set both, or neither", InputError);
  CHECK_THROWS_WITH_AS(launched_with({{"WORLD_SIZE", "2"}}), doctest::Contains("RANK is not"), InputError);
  CHECK_THROWS_WITH_AS(launched_with({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
                       "RANK=2 is not a rank of WORLD_SIZE=2: ranks count from 0", InputError);
  CHECK_THROWS_WITH_AS(launched_with({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), doctest::Contains("RANK=\"one\""),
                       InputError);
  CHECK_THROWS_WITH_AS(launched_with({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), doctest::Contains("from 0 to"),
                       InputError);
  CHECK_THROWS_WITH_AS(
      launched_with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
      doctest::Contains("unset those that do not belong"), InputError);
}

TEST_CASE("Rank 0 is met at MASTER_ADDR and MASTER_PORT, one further where torchrun's store is there") {
  const Variables plain = {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  CHECK(meeting_point(of(plain)).host == "node1");
  CHECK(meeting_point(of(plain)).port == 29500);
  const Variables store = {
      {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  CHECK(meeting_point(of(store)).port == 29501);
  const Variables half = {{"MASTER_ADDR", "node1"}}, none = {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "0"}};
  CHECK_THROWS_WITH_AS(meeting_point(of(half)), doctest::Contains("MASTER_PORT"), InputError);
  CHECK_THROWS_WITH_AS(meeting_point(of(none)), doctest::Contains("MASTER_PORT=\"0\""), InputError);
}

TEST_CASE("The secret of a run is a variable's or a file's, of sixteen characters or more, and nobody else's to read") {
  const auto with = [](Variables more) {
    more.insert({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
    return meeting_point(of(more)).secret;
  };
  CHECK(with({}).empty());
  CHECK(with({{"PIPEWRIGHT_SECRET", ""}, {"PIPEWRIGHT_SECRET_FILE", ""}}).empty());
  CHECK(with({{"PIPEWRIGHT_SECRET", "sixteen letters."}}) == "sixteen letters.");
  CHECK_THROWS_WITH_AS(with({{"PIPEWRIGHT_SECRET", "fifteen letters"}}),
                       doctest::Contains("PIPEWRIGHT_SECRET has 15 characters"), InputError);
  CHECK_THROWS_WITH_AS(with({{"PIPEWRIGHT_SECRET", "sixteen letters."}, {"PIPEWRIGHT_SECRET_FILE", "x"}}),
                       doctest::Contains("are both set; unset one of them"), InputError);

  const Scratch folder;
  const auto file = [&](const std::string& text, ::mode_t mode) {
    const std::string path = folder.write("secret", text);
    ::chmod(path.c_str(), mode);
    return with({{"PIPEWRIGHT_SECRET_FILE", path}});
  };
  CHECK(file("sixteen letters.\r\n", 0600) == "sixteen letters.");
  CHECK(file("sixteen letters.", 0400) == "sixteen letters.");
  CHECK_THROWS_WITH_AS(file("sixteen letters.", 0644), doctest::Contains("(mode 0644); say chmod 600"), InputError);
  CHECK_THROWS_WITH_AS(file("short\n", 0600), doctest::Contains("PIPEWRIGHT_SECRET_FILE has 5 characters"), InputError);
  CHECK_THROWS_WITH_AS(file(std::string(5000, 'x'), 0600), doctest::Contains("is larger than 4096 bytes"), InputError);
  CHECK_THROWS_WITH_AS(with({{"PIPEWRIGHT_SECRET_FILE", folder.path("none")}}),
                       doctest::Contains("No such file or directory; make it: (umask 077; head -c 32"), InputError);
  CHECK_THROWS_WITH_AS(with({{"PIPEWRIGHT_SECRET_FILE", "/dev/zero"}}), doctest::Contains("is not a file"), InputError);
}
