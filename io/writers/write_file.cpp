// All or nothing: the bytes go to a temporary file beside the target, which takes the target's name only when every
// byte is on the disk. Devices and pipes cannot be renamed onto and are written directly.
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/plain_words.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

[[noreturn]] void fail(const std::string& path, int error, const std::string& way_out) {
  throw InputError(path + ": cannot write: " + system_words(error) + "; " + way_out);
}

std::string way_out(int error, const std::string& folder) {
  struct stat status {};
  // /proc has entries of its own alone, and says that there is no such file.
  if (error == ENOENT && ::stat(folder.c_str(), &status) == 0)
    return "no file can be made in " + folder + ": write elsewhere with -o";
  switch (error) {
    case ENOENT: return "the folder " + folder + " does not exist: create it first, or write elsewhere with -o";
    case ENOTDIR: return folder + " is not a folder: write elsewhere with -o";
    case EACCES:
    case EPERM:
    case EROFS: return "write into a folder that is yours to write with -o";
    case ENOSPC:
    case EDQUOT: return "free some space, or write to another disk with -o";
    case EFBIG: return "files may not be so large here: raise the limit (ulimit -f), or write elsewhere with -o";
    case ENAMETOOLONG: return "take a shorter name with -o";
    case ENXIO: return "the pipe has no reader: start its reader first, or write to a file with -o";
    default: return "write elsewhere with -o";
  }
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Where a chain of links ends, so that a link stays a link; `path` itself when nothing is there yet.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  const std::string result = real;
  std::free(real);
  return result;
}

int write_all(int file, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += at(n);
  }
  return 0;
}

// A temporary file that vanishes unless it is given its final name; also where a signal ends the program.
class Temporary {
 public:
  explicit Temporary(const std::string& target)
      : name_(target + ".XXXXXX"), cleared_([this] { make(); }, [this] { unlink(); }) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (file_ >= 0) ::close(file_);
    if (file_ >= 0 || closed_) unlink();
  }
  bool is_open() const { return file_ >= 0; }
  int error() const { return error_; }  // why it is not

  // Each returns 0 or errno.
  int fill(const std::string& bytes, mode_t mode) {
    if (const int error = write_all(file_, bytes)) return error;
    if (::fchmod(file_, mode) != 0) return errno;
    return ::fsync(file_) != 0 && errno != EINVAL && errno != ENOTSUP ? errno : 0;
  }
  int rename_to(const std::string& target) {
    closed_ = true;
    if (::close(std::exchange(file_, -1)) != 0) return errno;
    if (::rename(name_.c_str(), target.c_str()) != 0) return errno;
    closed_ = false;
    return 0;
  }

 private:
  void make() {
    file_ = ::mkstemp(name_.data());
    if (file_ < 0) error_ = errno, name_.clear();
  }
  void unlink() const { ::unlink(name_.c_str()); }  // of no name: nothing

  std::string name_;
  int file_ = -1, error_ = 0;
  bool closed_ = false;
  ClearedAtEnd cleared_;
};

void write_stream(const std::string& path, const std::string& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);  // a FIFO without reader: ENXIO
  if (file < 0) fail(path, errno, way_out(errno, folder_of(path)));
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  int error = write_all(file, bytes);
  if (::close(file) != 0 && error == 0) error = errno;
  if (error != 0) fail(path, error, way_out(error, folder_of(path)));
}

mode_t usual_mode() {
  const mode_t mask = ::umask(0);  // can be read only by setting it
  ::umask(mask);
  return 0666 & ~mask;
}

// What stands at a path, and what writing there would replace.
struct Target {
  explicit Target(const std::string& path) : name(resolved(path)) {
    struct stat status {};
    exists = ::stat(name.c_str(), &status) == 0;
    mode = status.st_mode;
    if (path.empty() || (exists && S_ISDIR(mode)) || path.back() == '/')
      throw InputError((path.empty() ? std::string("-o \"\"") : path) +
                       ": cannot write: it is a folder; name a file in it, e.g. " + (path.empty() ? "./" : path) +
                       (path.empty() || path.back() == '/' ? "" : "/") + "result.json");
    if (regular() && exists && ::access(name.c_str(), W_OK) != 0) fail(path, errno, way_out(errno, folder_of(path)));
  }
  bool regular() const { return !exists || S_ISREG(mode); }

  std::string name;
  bool exists = false;
  mode_t mode = 0;
};

}  // namespace

void check_writable(const std::string& path) {
  const Target target(path);
  if (!target.regular()) return;  // a device, or a pipe whose reader may come later
  const Temporary probe(target.name);
  if (!probe.is_open()) fail(path, probe.error(), way_out(probe.error(), folder_of(path)));
}

void write_file(const std::string& path, const std::string& bytes) {
  const Target target(path);
  if (!target.regular()) return write_stream(path, bytes);
  Temporary temporary(target.name);
  if (!temporary.is_open()) fail(path, temporary.error(), way_out(temporary.error(), folder_of(path)));
  if (const int error = temporary.fill(bytes, target.exists ? target.mode & 07777 : usual_mode()))
    fail(path, error, way_out(error, folder_of(path)));
  if (const int error = temporary.rename_to(target.name)) fail(path, error, way_out(error, folder_of(path)));
}

}  // namespace pipewright::io
