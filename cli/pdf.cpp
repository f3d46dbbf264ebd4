#include "cli/pdf.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.hpp"
#include "io/read/read_file.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::cli {
namespace {

constexpr const char* kConverter = "rsvg-convert";
constexpr std::size_t kLargestPdf = std::size_t{1} << 30;

// A folder of its own, which goes with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    const char* const parent = std::getenv("TMPDIR");
    path_ = std::string(parent == nullptr || *parent == '\0' ? "/tmp" : parent) + "/pipewright-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr)
      throw InputError("no folder for the PDF under " + path_ + ": " + std::strerror(errno) + "; set TMPDIR");
  }
  ~ScratchFolder() {
    for (const char* name : {"/in.svg", "/out.pdf", "/words"})
      unlink((path_ + name).c_str());
    rmdir(path_.c_str());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

bool on_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (access((std::string(rest.substr(0, end)) + "/" + program).c_str(), X_OK) == 0) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

// The date in the file is that of SOURCE_DATE_EPOCH, or none that changes.
std::vector<std::string> environment_of_converter() {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each)
    variables.emplace_back(*each);
  if (std::getenv("SOURCE_DATE_EPOCH") == nullptr) variables.emplace_back("SOURCE_DATE_EPOCH=0");
  return variables;
}

}  // namespace

void check_pdf_converter() {
  if (!on_path(kConverter))
    throw InputError(Place{}, "--output",
                     "a .pdf is made by rsvg-convert, which is not on the PATH (Debian: apt-get install librsvg2-bin); "
                     "or write .svg and convert it elsewhere");
}

std::string pdf_of(const std::string& svg) {
  const ScratchFolder folder;
  const std::string in = folder.file("in.svg"), out = folder.file("out.pdf"), words = folder.file("words");
  write_file(in, svg);
  std::vector<std::string> texts = {kConverter, "--format=pdf", "--output=" + out, in};
  std::vector<std::string> variables = environment_of_converter();
  std::vector<char*> arguments, environment;
  for (std::string& text : texts)
    arguments.push_back(text.data());
  for (std::string& variable : variables)
    environment.push_back(variable.data());
  arguments.push_back(nullptr), environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, words.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, kConverter, &files, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) throw InputError(std::string(kConverter) + " does not start: " + std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw InputError(std::string(kConverter) + " failed: " + read_file(words, kLargestPdf) +
                     "; write .svg to see what it was given");
  return read_bytes(out, kLargestPdf);
}

}  // namespace pipewright::cli
