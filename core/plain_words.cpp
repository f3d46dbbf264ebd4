#include "core/plain_words.hpp"

#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

namespace pipewright::core {
namespace {

std::string of_path(const std::filesystem::filesystem_error& error) {
  const std::string path = error.path1().empty() ? "a path" : error.path1().string();
  return path + ": " + system_words(error.code().value()) +
         "; check the path, and that the folder this command runs in is still there";
}

std::string of_system(const std::system_error& error) {
  if (error.code() == std::errc::resource_unavailable_try_again)
    return "no more threads can be started: a limit on threads or on memory is reached; use fewer workers or a smaller "
           "--jobs, or raise the limit (ulimit -u, ulimit -v, the container's)";
  return "the system refuses what this needs: " + system_words(error.code().value());
}

}  // namespace

std::string system_words(int error) {
  switch (error) {
    case 0: return "the system gives no reason";
    case EAGAIN:
    case EINPROGRESS: return "no answer came in time";
    default: return std::generic_category().message(error);
  }
}

std::string plain_words(const std::exception& error) {
  if (const auto* path = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) return of_path(*path);
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return of_system(*system);
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return "out of memory; ask for fewer micro-batches or stages, or for a smaller --jobs";
  if (dynamic_cast<const std::runtime_error*>(&error) != nullptr) return error.what();
  return std::string("a fault of pipewright itself (") + error.what() +
         "); please report it with the command and the files that it reads";
}

}  // namespace pipewright::core
