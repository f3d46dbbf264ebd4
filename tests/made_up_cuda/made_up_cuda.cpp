#include "tests/made_up_cuda/made_up_cuda.hpp"

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace pipewright::tests::made_up_cuda {
namespace {

// Written as one piece: processes of one run share the file.
void write_report() {
  Cuda& all = cuda();
  const Lock lock(all.mutex);
  if (all.machine.report.empty()) return;
  const std::string text = all.ledger.report() + "end\n";
  const int file = open(all.machine.report.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::fprintf(stderr, "MADE_UP_CUDA: cannot write %s\n", all.machine.report.c_str());
  if (file >= 0) close(file);
}
// Goes after all that begins with main(), and so after whatever gives back memory of the GPU at the very end.
const struct AtEnd {
  AtEnd() { cuda(); }
  ~AtEnd() { write_report(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
} at_end;

// Until something comes to its end, or a little while where nobody knows when. Short waits do not sleep: that takes
// longer than they last.
void pause(Lock& lock) {
  constexpr std::int64_t kSleep = 100'000, kUnknown = 50'000;  // ns
  const std::optional<std::int64_t> next = cuda().streams.next_end(now());
  const std::int64_t left = next ? *next - now() : kUnknown + kSleep;
  lock.unlock();
  if (left > kSleep)
    std::this_thread::sleep_for(std::chrono::nanoseconds(left - kSleep));
  else
    std::this_thread::yield();
  lock.lock();
  cuda().streams.go_on(now());
}

// The answer that was chosen for it, or 0.
int failure_of(const char* name) {
  Cuda& all = cuda();
  const long number = all.ledger.count(name);
  const Failure& fail = all.machine.fail;
  return fail.function == name && fail.nth == number ? fail.error : 0;
}

}  // namespace

Cuda& cuda() {
  static Cuda* const all = new Cuda;  // outlives whatever may still call it
  return *all;
}

Thread& this_thread() {
  thread_local Thread thread;
  return thread;
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

cudaError_t call(const char* name, const std::function<cudaError_t(Lock&)>& body) {
  Cuda& all = cuda();
  Lock lock(all.mutex);
  Thread& thread = this_thread();
  auto answer = static_cast<cudaError_t>(failure_of(name));
  if (!thread.pushed.empty()) all.ledger.note(std::string(name) + " while a context is pushed");
  all.streams.go_on(now());
  const cudaError_t& broken = all.broken[thread.device];
  if (answer == cudaSuccess) answer = broken;
  if (answer == cudaSuccess) answer = body(lock);
  if (answer == cudaSuccess) answer = broken;  // what it waited for has failed
  if (answer != cudaSuccess) thread.last = answer;
  return answer;
}

CUresult driver_call(const char* name, const std::function<CUresult(Lock&)>& body) {
  Cuda& all = cuda();
  Lock lock(all.mutex);
  const int answer = failure_of(name);
  all.streams.go_on(now());
  if (answer != 0) return static_cast<CUresult>(answer);
  if (const cudaError_t broken = all.broken[this_thread().device]; broken != cudaSuccess)
    return static_cast<CUresult>(broken);  // the two have the same numbers
  return body(lock);
}

cudaError_t closing_call(const char* name, const std::function<cudaError_t(Lock&)>& body) {
  Cuda& all = cuda();
  Lock lock(all.mutex);
  auto answer = static_cast<cudaError_t>(failure_of(name));
  all.streams.go_on(now());
  const cudaError_t done = body(lock);
  if (answer == cudaSuccess) answer = done;
  if (answer == cudaSuccess) answer = all.broken[this_thread().device];
  if (answer != cudaSuccess) this_thread().last = answer;
  return answer;
}

Stream* stream_of(const char* name, cudaStream_t handle) {
  Cuda& all = cuda();
  const int device = this_thread().device;
  if (handle != nullptr) {
    if (all.ledger.lives(Kind::Stream, handle)) return reinterpret_cast<Stream*>(handle);
    all.ledger.note(std::string(name) + " on a stream that is none, or is gone");
    return nullptr;
  }
  static Stream* defaults[kMostGpus] = {};
  if (defaults[device] == nullptr) {
    defaults[device] = all.streams.add();
    defaults[device]->device = device;
    defaults[device]->sms = {{0, all.machine.sms}};
  }
  return defaults[device];
}

Event* new_event() {
  const Thread& thread = this_thread();
  const void* const current = thread.pushed.empty() ? nullptr : thread.pushed.back();
  auto* const event = new Event{thread.device, current, nullptr};
  cuda().ledger.made(Kind::Event, event);
  return event;
}

void ask(Stream& stream, Item item) {
  item.asked = now();
  if (stream.recording) return stream.recorded.push_back(std::move(item));
  stream.items.push_back(std::move(item));
  ++stream.asked;
}

void wait_for(Stream& stream, Lock& lock) {
  const std::int64_t until = stream.asked;
  while (cuda().streams.has(&stream) && stream.done < until)
    pause(lock);
}

void wait_for(const Moment& moment, Lock& lock) {
  while (!moment.passed)
    pause(lock);
}

}  // namespace pipewright::tests::made_up_cuda
