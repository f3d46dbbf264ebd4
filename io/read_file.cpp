#include "io/read_file.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.hpp"

namespace pipewright {
namespace {

class OpenFile {
 public:
  explicit OpenFile(int number) : number_(number) {}
  ~OpenFile() {
    if (number_ > STDIN_FILENO) close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InputError((path == "-" ? "standard input" : path) + ": " + why);
}

[[noreturn]] void refuse_size(const std::string& path, std::size_t limit) {
  refuse(path, "is larger than " + std::to_string(limit >> 20) + " MiB; split it, or write repeated layers once with " +
                   "repeat: N");
}

std::string system_reason() {
  return std::strerror(errno);
}

// What cannot be read as a file, told before it is opened: opening a device may already act on it.
void refuse_special(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    refuse(path, "cannot be read: " + system_reason() + "; check the path, it is relative to the working directory");
  if (S_ISDIR(info.st_mode)) refuse(path, "is a directory; name a file in it");
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) refuse(path, "is a device; name a text file");
  if (S_ISSOCK(info.st_mode)) refuse(path, "is a socket; name a text file");
}

// Reads to the end. A FIFO is opened without blocking, so that one nobody writes to ends at once (read gives 0 bytes);
// one with a writer that is still busy gives EAGAIN and is waited for.
std::string contents(const OpenFile& file, const std::string& path, std::size_t limit, bool fifo) {
  std::string text;
  std::array<char, 65536> block;
  bool writer_seen = false;
  for (;;) {
    const ssize_t count = read(file.number(), block.data(), block.size());
    if (count > 0) {
      text.append(block.data(), static_cast<std::size_t>(count));
      writer_seen = true;
      if (text.size() > limit) refuse_size(path, limit);
    } else if (count == 0) {
      if (fifo && !writer_seen) refuse(path, "is a FIFO without a writer; start the writer first, or name a file");
      return text;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      writer_seen = true;
      pollfd wait{file.number(), POLLIN, 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      refuse(path, "cannot be read: " + system_reason());
    }
  }
}

}  // namespace

std::string read_file(const std::string& path, std::size_t limit) {
  if (path == "-") return contents(OpenFile(STDIN_FILENO), path, limit, false);
  if (path.empty()) throw InputError("an empty path; name a file");
  if (path.find('\0') != std::string::npos) throw InputError("a path with a zero byte; name a file");
  refuse_special(path);
  const OpenFile file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.number() < 0) refuse(path, "cannot be read: " + system_reason());
  struct stat info {};
  if (fstat(file.number(), &info) != 0) refuse(path, "cannot be read: " + system_reason());
  if (S_ISREG(info.st_mode) && info.st_size > static_cast<off_t>(limit)) refuse_size(path, limit);
  return contents(file, path, limit, S_ISFIFO(info.st_mode));
}

}  // namespace pipewright
