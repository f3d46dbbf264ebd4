#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::tests {
namespace {

namespace fs = std::filesystem;

// A folder of its own for every test, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "pipewright-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ / name; }
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(path_), fs::directory_iterator()); }

 private:
  fs::path path_;
};

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string message(const std::string& path, const std::string& bytes = "x") {
  try {
    write_file(path, bytes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a file is written whole, replaces the old one and leaves nothing beside it") {
  const Folder folder;
  const std::string path = folder.file("result.json");
  write_file(path, "old, and longer than the new one");
  write_file(path, "new");
  CHECK(content(path) == "new");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a file gets the usual permissions, an old one keeps its own") {
  const Folder folder;
  const mode_t mask = ::umask(022);
  write_file(folder.file("new"), "x");
  ::umask(mask);
  write_file(folder.file("old"), "x");
  fs::permissions(folder.file("old"), fs::perms::owner_read | fs::perms::owner_write);
  write_file(folder.file("old"), "y");
  struct stat status {};
  REQUIRE(::stat(folder.file("new").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0644);
  REQUIRE(::stat(folder.file("old").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("a link stays a link to the written file") {
  const Folder folder;
  write_file(folder.file("real"), "old");
  fs::create_symlink("real", folder.file("link"));
  write_file(folder.file("link"), "new");
  CHECK(fs::is_symlink(folder.file("link")));
  CHECK(content(folder.file("real")) == "new");
}

TEST_CASE("a missing folder is named, with a way out") {
  const Folder folder;
  const std::string path = folder.file("no/such/x.json");
  CHECK(message(path) == path + ": cannot write: No such file or directory; the folder " + folder.file("no/such") +
                             " does not exist: create it first, or write elsewhere with -o");
  CHECK(folder.entries() == 0);
}

TEST_CASE("a folder cannot be the output") {
  const Folder folder;
  fs::create_directory(folder.file("d"));
  CHECK(
      message(folder.file("d")).find("it is a folder; name a file in it, e.g. " + folder.file("d") + "/result.json") !=
      std::string::npos);
  CHECK(message(folder.file("d/")).find("it is a folder") != std::string::npos);
}

TEST_CASE("a device that is full is an error and stays a device") {
  if (!fs::exists("/dev/full")) {
    MESSAGE("skipped: no /dev/full here");
    return;
  }
  CHECK(message("/dev/full", "some bytes") ==
        "/dev/full: cannot write: No space left on device; free some space, or write to another disk with -o");
  CHECK(fs::is_character_file("/dev/full"));
}

TEST_CASE("a write that fails half-way leaves the old file and no temporary one") {
  const Folder folder;
  const std::string path = folder.file("x.json");
  write_file(path, "old");
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string text = message(path, std::string(100'000, 'x'));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(text.find("cannot write: File too large") != std::string::npos);
  CHECK(content(path) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a pipe that nobody reads is an error, not a hang") {
  const Folder folder;
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK(message(folder.file("pipe")).find("the pipe has no reader") != std::string::npos);
}

}  // namespace pipewright::tests
