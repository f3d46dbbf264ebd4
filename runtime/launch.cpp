#include "runtime/launch.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/check.hpp"
#include "core/ids.hpp"
#include "core/plain_words.hpp"

namespace pipewright::runtime {
namespace {

struct Names {
  const char *rank, *size, *size_instead;  // size_instead: where size is not set; nullptr: none
};
constexpr std::array<Names, 4> kLaunchers = {{
    {"RANK", "WORLD_SIZE", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"PMI_RANK", "PMI_SIZE", nullptr},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
}};
constexpr int kMostRanks = 4096;

int number(const char* name, const char* text, int least, int most) {
  const std::string_view given(text);
  int value = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
  if (error != std::errc{} || end != given.data() + given.size() || value < least || value > most)
    throw InputError(
        fmt::format("{}=\"{}\" in the environment is not a whole number from {} to {}; launchers set it, "
                    "or you do by hand",
                    name, given, least, most));
  return value;
}

std::optional<Launch> of(const Names& names, const Environment& variables) {
  const char* size_name = names.size;
  const char* size = variables(size_name);
  if (size == nullptr && names.size_instead != nullptr) size = variables(size_name = names.size_instead);
  const char* const rank = variables(names.rank);
  if (rank == nullptr) {
    // A shell inside of an allocation knows the number of tasks; only a task has a number.
    if (size != nullptr && names.size_instead == nullptr)
      throw InputError(
          fmt::format("{} is set in the environment and {} is not; set both, or neither", size_name, names.rank));
    return std::nullopt;
  }
  if (size == nullptr)
    throw InputError(
        fmt::format("{} is set in the environment and {} is not; set both, or neither", names.rank, size_name));
  Launch launch{number(names.rank, rank, 0, kMostRanks - 1), number(size_name, size, 1, kMostRanks),
                fmt::format("{} and {}", names.rank, size_name)};
  if (launch.rank >= launch.size)
    throw InputError(fmt::format("{}={} is not a rank of {}={}: ranks count from 0", names.rank, launch.rank, size_name,
                                 launch.size));
  return launch;
}

constexpr std::size_t kLeastSecret = 16, kMostSecret = 4096;
constexpr const char* kMakeSecret = "head -c 32 /dev/urandom | base64";

std::string secret_of_file(const char* path) {
  const auto wrong = [&](const std::string& what) {
    return InputError(fmt::format("{}={}: {}", kSecretFileVariable, path, what));
  };
  struct stat about {};
  if (::stat(path, &about) != 0)
    throw wrong(fmt::format("{}; make it: (umask 077; {} > {})", system_words(errno), kMakeSecret, path));
  if (!S_ISREG(about.st_mode)) throw wrong("is not a file; name one that holds the secret");
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw wrong(
        fmt::format("others than its owner may use it (mode {:04o}); say chmod 600 {}", about.st_mode & 07777, path));
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostSecret + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.bad()) throw wrong(fmt::format("cannot be read, or is larger than {} bytes", kMostSecret));
  text.resize(at(file.gcount()));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::string secret(const Environment& variables) {
  const char *const given = variables(kSecretVariable), *const file = variables(kSecretFileVariable);
  const bool has_file = file != nullptr && *file != '\0';
  std::string text = given == nullptr ? "" : given;
  if (!text.empty() && has_file)
    throw InputError(fmt::format("{} and {} are both set; unset one of them", kSecretVariable, kSecretFileVariable));
  if (text.empty() && !has_file) return "";
  if (has_file) text = secret_of_file(file);
  if (text.size() < kLeastSecret)
    throw InputError(
        fmt::format("{} has {} characters, and whoever hears the ranks meet can guess a short one; use {} or "
                    "more: {}",
                    has_file ? kSecretFileVariable : kSecretVariable, text.size(), kLeastSecret, kMakeSecret));
  return text;
}

}  // namespace

const char* environment(const char* name) {
  return std::getenv(name);
}

std::optional<Launch> launched(const Environment& variables) {
  const auto by_hand = of(kLaunchers[0], variables), open_mpi = of(kLaunchers[1], variables);
  if (by_hand && open_mpi && (by_hand->rank != open_mpi->rank || by_hand->size != open_mpi->size))
    throw InputError(
        fmt::format("{} say rank {} of {}, {} say rank {} of {}; unset those that do not belong to this run",
                    by_hand->by, by_hand->rank, by_hand->size, open_mpi->by, open_mpi->rank, open_mpi->size));
  if (by_hand) return by_hand;
  if (open_mpi) return open_mpi;
  if (const auto pmi = of(kLaunchers[2], variables)) return pmi;
  return of(kLaunchers[3], variables);
}

int local_rank(const Environment& variables) {
  for (const char* const name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (const char* const value = variables(name)) return number(name, value, 0, kMostRanks - 1);
  const auto launch = launched(variables);
  return launch ? launch->rank : 0;
}

MeetingPoint meeting_point(const Environment& variables) {
  const char *const host = variables("MASTER_ADDR"), *const port = variables("MASTER_PORT");
  if (host == nullptr || *host == '\0' || port == nullptr)
    throw InputError(Place{}, "run.transport",
                     "tcp needs MASTER_ADDR (the host of rank 0) and MASTER_PORT (a free port there) in the "
                     "environment, the same for all ranks, e.g. MASTER_ADDR=localhost MASTER_PORT=29500");
  MeetingPoint point{host, number("MASTER_PORT", port, 1, 65535), secret(variables)};
  const char* const store = variables("TORCHELASTIC_USE_AGENT_STORE");
  if (store != nullptr && std::string_view(store) == "True" && point.port < 65535) ++point.port;
  return point;
}

}  // namespace pipewright::runtime
