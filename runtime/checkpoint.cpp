#include "runtime/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.hpp"
#include "core/plain_words.hpp"
#include "runtime/bytes.hpp"
#include "runtime/hash.hpp"

namespace pipewright::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kFormat = 1;
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::int64_t kLargestManifest = 1 << 20;
constexpr int kKept = 2;

// How every file begins.
struct Head {
  std::array<char, 8> letters{'p', 'w', 'c', 'h', 'e', 'c', 'k', '\n'};
  std::uint32_t format = kFormat;
  std::uint32_t byte_order = kByteOrder;
  std::int64_t payload = 0;
};
constexpr std::int64_t kAround = sizeof(Head) + sizeof(std::uint64_t);  // bytes of a file beside its payload

template <class T>
std::span<const std::byte> raw(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::string reason() {
  return system_words(errno);
}
[[noreturn]] void cannot_write(const std::string& path, const std::string& why) {
  throw InputError(
      fmt::format("{}: the checkpoint cannot be written: {}; make room for it, or name another folder", path, why));
}
[[noreturn]] void broken(const std::string& path, const std::string& what) {
  throw InputError(fmt::format(
      "{}: {}; remove this checkpoint to resume from the one before, if there is one, or begin again", path, what));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

// A file of a checkpoint, written in one go: payload, then `finish`.
class FileOut {
 public:
  FileOut(std::string path, std::int64_t payload) : path_(std::move(path)), left_(payload) {
    if (file_.number() < 0) cannot_write(path_, reason());
    Head head;
    head.payload = payload;
    put(raw(head));
  }
  void write(std::span<const std::byte> bytes) {
    left_ -= static_cast<std::int64_t>(bytes.size());
    put(bytes);
  }
  void finish() {
    PP_CHECK(left_ == 0);
    const std::uint64_t sum = checksum_.value();
    put(raw(sum));
    if (::fsync(file_.number()) != 0) cannot_write(path_, reason());
  }

 private:
  void put(std::span<const std::byte> bytes) {
    checksum_.add(bytes);
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.number(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) cannot_write(path_, reason());
      bytes = bytes.subspan(at(written));
    }
  }
  std::string path_;
  Descriptor file_ = Descriptor(path_, O_WRONLY | O_CREAT | O_TRUNC);
  Checksum checksum_;
  std::int64_t left_;
};

// The same read. What it holds counts only when `finish` has found it whole.
class FileIn {
 public:
  explicit FileIn(std::string path) : path_(std::move(path)), file_(path_, O_RDONLY | O_NONBLOCK) {
    if (file_.number() < 0) broken(path_, "cannot be read: " + reason());
    struct stat about {};
    if (::fstat(file_.number(), &about) != 0 || !S_ISREG(about.st_mode)) broken(path_, "is not a regular file");
    Head head;
    const Head expected;
    if (about.st_size < kAround) broken(path_, fmt::format("{} B are not files of a checkpoint", about.st_size));
    get(std::as_writable_bytes(std::span(&head, 1)));
    if (head.letters != expected.letters) broken(path_, "is not a file of a checkpoint of pipewright");
    if (head.byte_order != kByteOrder) broken(path_, "was written by a machine with another order of bytes");
    if (head.format != kFormat)
      broken(path_, fmt::format("has format {}, this pipewright reads {}", head.format, kFormat));
    payload_ = about.st_size - kAround;
    if (head.payload != payload_)
      broken(path_, fmt::format("is cut short or damaged: {} B where its head says {}", about.st_size,
                                static_cast<std::uint64_t>(head.payload) + static_cast<std::uint64_t>(kAround)));
  }
  std::int64_t payload() const { return payload_; }
  void read(std::span<std::byte> into) { get(into); }
  void finish() {
    const std::uint64_t expected = checksum_.value();
    std::uint64_t sum = 0;
    get(std::as_writable_bytes(std::span(&sum, 1)));
    if (sum != expected) broken(path_, "is damaged: its checksum is not that of what it holds");
  }
  const std::string& path() const { return path_; }

 private:
  void get(std::span<std::byte> into) {
    for (std::span<std::byte> rest = into; !rest.empty();) {
      const ssize_t got = ::read(file_.number(), rest.data(), rest.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) broken(path_, got < 0 ? "cannot be read: " + reason() : "ends too early");
      rest = rest.subspan(at(got));
    }
    checksum_.add(into);
  }
  std::string path_;
  Descriptor file_;
  Checksum checksum_;
  std::int64_t payload_ = 0;
};

void sync_folder(const std::string& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY);
  if (folder.number() < 0 || ::fsync(folder.number()) != 0) cannot_write(path, reason());
}

// The number of "step-12", of "step-12.partial" where `partial`.
std::optional<int> step_of(const fs::path& path, bool partial) {
  std::string name = path.filename().string();
  const std::string_view ending = ".partial";
  if (name.ends_with(ending) != partial || !name.starts_with("step-")) return {};
  name = name.substr(5, name.size() - 5 - (partial ? ending.size() : 0));
  int step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || std::to_string(step) != name) return {};
  return step;
}

// Ascending.
std::vector<int> steps_in(const std::string& folder, bool partial) {
  std::vector<int> steps;
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  if (error)
    throw InputError(
        fmt::format("--checkpoint {}: {}; name a folder that can be read", folder, system_words(error.value())));
  for (const fs::directory_entry& entry : entries)
    if (const std::optional<int> step = step_of(entry.path(), partial); step && entry.is_directory(error))
      steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

// What stands before the weights in a worker's file: everything that must be as it is here.
Blob worker_head(const Blob& manifest, WorkerId worker, const std::vector<ChunkState>& state) {
  BytesOut out;
  out.put(Hash().add(manifest).value()).put(static_cast<std::int64_t>(worker));
  out.put(static_cast<std::uint64_t>(state.size()));
  for (const ChunkState& chunk : state) {
    out.put(static_cast<std::int64_t>(chunk.virtual_stage)).put(static_cast<std::uint64_t>(chunk.blocks.size()));
    for (const auto& block : chunk.blocks)
      out.put(static_cast<std::uint64_t>(block.size()));
  }
  return out.bytes();
}

std::int64_t payload_bytes(const Blob& head, const std::vector<ChunkState>& state) {
  std::size_t bytes = head.size();
  for (const ChunkState& chunk : state) {
    bytes += sizeof *chunk.updates;
    for (const auto& block : chunk.blocks)
      bytes += block.size();
  }
  return static_cast<std::int64_t>(bytes);
}

std::string worker_file(const std::string& folder, WorkerId worker) {
  return fmt::format("{}/worker-{}", folder, worker);
}

// A hash says more than its text; where there is none, the text counts.
bool alike(const MustMatch& a, const MustMatch& b) {
  return a.hash != 0 || b.hash != 0 ? a.hash == b.hash : a.text == b.text;
}

}  // namespace

std::vector<MustMatch> checkpoint_identity(const RunPlan& run, const RunSettings& settings, const Data& data,
                                           const Backend& backend, const std::string& version) {
  std::vector<MustMatch> identity = {{"version of pipewright", version, 0}};
  for (MustMatch& each : must_match(run, settings, data, backend)) {
    if (each.what == "steps") continue;
    if (each.what == "data") each.hash = Hash().add(each.hash).add(data.contents()).value();
    identity.push_back(std::move(each));
  }
  return identity;
}

Checkpoints::Checkpoints(std::string folder, int every, int steps, std::vector<MustMatch> identity, const Plan& plan)
    : folder_(std::move(folder)),
      every_(every),
      steps_(steps),
      workers_(plan.workers()),
      step_samples_(plan.global_batch_size),
      identity_(std::move(identity)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  std::error_code ignored;
  if (!fs::is_directory(folder_, ignored))
    throw InputError(fmt::format("--checkpoint {}: {}; name a folder", folder_.empty() ? "\"\"" : folder_,
                                 folder_.empty() ? "is not a name"
                                 : error         ? system_words(error.value())
                                                 : "is not a folder"));
  if (::access(folder_.c_str(), W_OK | X_OK) != 0)
    throw InputError(fmt::format("--checkpoint {}: {}; name a folder that can be written", folder_, reason()));
}

std::string Checkpoints::folder(int done) const {
  return fmt::format("{}/step-{}", folder_, done);
}

void Checkpoints::begin_anew() {
  const std::vector<int> steps = steps_in(folder_, false);
  if (!steps.empty())
    throw InputError(
        fmt::format("{}: this folder has a checkpoint already; go on from it with --resume, or name another folder for "
                    "a run from the beginning",
                    folder(steps.back())));
}

int Checkpoints::newest() const {
  const std::vector<int> steps = steps_in(folder_, false);
  return steps.empty() ? 0 : steps.back();
}

void Checkpoints::resume(int newest) {
  std::error_code ignored;
  if (!fs::exists(folder(newest), ignored))
    throw InputError(fmt::format(
        "{}: rank 0 goes on from this checkpoint, and it is not there; all processes of a run must share the folder",
        folder(newest)));
  FileIn file(folder(newest) + "/manifest");
  if (file.payload() > kLargestManifest)
    broken(file.path(), fmt::format("is damaged: a manifest is never {} B long", file.payload()));
  Blob payload(at(file.payload()));
  file.read(payload);
  file.finish();
  check(file.path(), payload, newest);
  first_step_ = newest;
}

std::vector<std::byte> Checkpoints::manifest(int done) const {
  BytesOut out;
  out.put(static_cast<std::int64_t>(done)).put(done * step_samples_).put(static_cast<std::int64_t>(workers_));
  out.put(static_cast<std::uint64_t>(identity_.size()));
  for (const MustMatch& each : identity_)
    out.put(each.what).put(each.text).put(each.hash);
  return out.bytes();
}

void Checkpoints::check(const std::string& path, const std::vector<std::byte>& payload, int done) const {
  const auto differs = [&](const std::string& what, const std::string& there, const std::string& here) {
    throw InputError(
        fmt::format("{}: the checkpoint's run differs in its {} ({} there, {} here); resume with that run's scenario "
                    "and options, or begin again in another folder",
                    path, what, there, here));
  };
  try {
    BytesIn in(payload);
    const auto step = in.get<std::int64_t>(), samples = in.get<std::int64_t>(), workers = in.get<std::int64_t>();
    std::vector<MustMatch> there(in.counted(2 * sizeof(std::uint64_t)));
    for (MustMatch& each : there)
      each.what = in.text(), each.text = in.text(), each.hash = in.get<std::uint64_t>();
    for (std::size_t i = 0; i < std::max(there.size(), identity_.size()); ++i) {
      if (i >= there.size() || i >= identity_.size() || there[i].what != identity_[i].what)
        broken(path, "tells other things about its run than this pipewright does");
      const MustMatch &a = there[i], &b = identity_[i];
      if (alike(a, b)) continue;
      if (a.text != b.text) differs(a.what, a.text, b.text);
      differs(a.what, fmt::format("{}, hash {:016x}", a.text, a.hash), fmt::format("hash {:016x}", b.hash));
    }
    if (workers != workers_) differs("number of workers", std::to_string(workers), std::to_string(workers_));
    if (step != done) broken(path, fmt::format("is of step {}, the folder was renamed", step));
    if (samples != done * step_samples_)
      differs("position in the data", fmt::format("sample {}", samples), fmt::format("{}", done * step_samples_));
  } catch (const InputError&) {
    throw;
  } catch (const std::runtime_error&) {
    broken(path, "is damaged: it ends within one of its texts");
  }
}

void Checkpoints::read(WorkerId worker, const std::vector<ChunkState>& state) const {
  FileIn file(worker_file(folder(first_step_), worker));
  const Blob head = worker_head(manifest(first_step_), worker, state);
  const std::int64_t expected = payload_bytes(head, state);
  if (file.payload() != expected)
    broken(file.path(),
           fmt::format("holds {} B, and worker {} carries {} B from step to step", file.payload(), worker, expected));
  Blob found(head.size());
  file.read(found);
  if (found != head) broken(file.path(), "belongs to another checkpoint than the manifest next to it");
  for (const ChunkState& chunk : state) {
    file.read(std::as_writable_bytes(std::span(chunk.updates, 1)));
    if (*chunk.updates < 0 || *chunk.updates > std::int64_t{1} << 48)
      broken(file.path(), fmt::format("is damaged: {} updates", *chunk.updates));
    for (const auto& block : chunk.blocks)
      file.read(block);
  }
  file.finish();
}

void Checkpoints::write(int done, WorkerId worker, const std::vector<ChunkState>& state) const {
  const std::string partial = folder(done) + ".partial";
  std::error_code error;
  fs::create_directory(partial, error);
  if (error) cannot_write(partial, system_words(error.value()));
  const Blob head = worker_head(manifest(done), worker, state);
  FileOut file(worker_file(partial, worker), payload_bytes(head, state));
  file.write(head);
  for (const ChunkState& chunk : state) {
    file.write(raw(*chunk.updates));
    for (const auto& block : chunk.blocks)
      file.write(block);
  }
  file.finish();
}

void Checkpoints::complete(int done) const {
  const std::string partial = folder(done) + ".partial";
  std::error_code ignored;  // what cannot be removed stays
  for (WorkerId worker = 0; worker < workers_; ++worker)
    if (const std::string path = worker_file(partial, worker); !fs::is_regular_file(path, ignored))
      cannot_write(path, "the file is not there (all processes of a run must share the folder)");
  const Blob payload = manifest(done);
  FileOut file(partial + "/manifest", static_cast<std::int64_t>(payload.size()));
  file.write(payload);
  file.finish();
  sync_folder(partial);
  if (std::rename(partial.c_str(), folder(done).c_str()) != 0) cannot_write(folder(done), reason());
  sync_folder(folder_);
  const std::vector<int> steps = steps_in(folder_, false);
  for (std::size_t i = 0; i + kKept < steps.size(); ++i) {
    // Out of the way first: half removed, it must not look whole.
    const std::string old = folder(steps[i]);
    if (std::rename(old.c_str(), (old + ".partial").c_str()) == 0) fs::remove_all(old + ".partial", ignored);
  }
}

void Checkpoints::tidy() const {
  std::error_code ignored;
  for (const int step : steps_in(folder_, true))
    fs::remove_all(folder(step) + ".partial", ignored);
}

}  // namespace pipewright::runtime
