#include "io/read/read_file.hpp"

#include <array>
#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.hpp"
#include "core/ids.hpp"
#include "core/plain_words.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {
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
  return system_words(errno);
}

// What a relative path begins at, in full.
std::string where_from(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::current_path(failed);
  if (path.starts_with('/') || failed) return "";
  return ", it is relative to " + printable(folder.string());
}

// What cannot be read as a file, told before it is opened: opening a device may already act on it.
void refuse_special(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    refuse(path, "cannot be read: " + system_reason() + "; check the path" + where_from(path));
  if (S_ISDIR(info.st_mode)) refuse(path, "is a directory; name a file in it");
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) refuse(path, "is a device; name a text file");
  if (S_ISSOCK(info.st_mode)) refuse(path, "is a socket; name a text file");
}

struct stat status_of(const OpenFile& file, const std::string& path) {
  struct stat info {};
  if (fstat(file.number(), &info) != 0) refuse(path, "cannot be read: " + system_reason());
  return info;
}

int opened(const std::string& path) {
  if (path == "-") return STDIN_FILENO;
  if (path.empty()) throw InputError("an empty path; name a file");
  if (path.find('\0') != std::string::npos) throw InputError("a path with a zero byte; name a file");
  refuse_special(path);
  const int number = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (number < 0) refuse(path, "cannot be read: " + system_reason());
  return number;
}

}  // namespace

// A FIFO is opened without blocking, so that one nobody writes to ends at once (read gives 0 bytes); one with a writer
// that is still busy gives EAGAIN and is waited for.
class FilePieces::File {
 public:
  explicit File(const std::string& path) : path_(path), file_(opened(path)) {
    fifo_ = path != "-" && S_ISFIFO(status_of(file_, path).st_mode);
  }

  std::size_t read(std::span<char> room) {
    for (;;) {
      const ssize_t count = ::read(file_.number(), room.data(), room.size());
      if (count > 0) {
        writer_seen_ = true;
        return at(count);
      }
      if (count == 0) {
        if (fifo_ && !writer_seen_) refuse(path_, "is a FIFO without a writer; start the writer first, or name a file");
        return 0;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        writer_seen_ = true;
        pollfd wait{file_.number(), POLLIN, 0};
        poll(&wait, 1, -1);
      } else if (errno != EINTR) {
        refuse(path_, "cannot be read: " + system_reason());
      }
    }
  }

 private:
  std::string path_;
  OpenFile file_;
  bool fifo_ = false, writer_seen_ = false;
};

FilePieces::FilePieces(const std::string& path)
    : name_(path == "-" ? "standard input" : path), file_(std::make_unique<File>(path)) {}
FilePieces::~FilePieces() = default;

std::size_t FilePieces::read(std::span<char> room) {
  return file_->read(room);
}

std::string read_file(const std::string& path, std::size_t limit) {
  std::string text = read_bytes(path, limit);
  text.erase(0, text.size() - without_byte_order_mark(text).size());
  return text;
}

std::string read_bytes(const std::string& path, std::size_t limit) {
  FilePieces file(path);
  std::string text;
  std::array<char, 65536> block;
  while (const std::size_t count = file.read(block)) {
    text.append(block.data(), count);
    if (text.size() > limit) refuse_size(path, limit);
  }
  return text;
}

}  // namespace pipewright::io
