// What a signal that asks the program to end does: one mechanism for all commands, and the only place that catches
// signals.
//
//     SIGINT            Ctrl-C                          the program says what was ended and what is kept,
//     SIGTERM           Slurm, timeout(1), kill(1)      removes what is half written (core/ending.hpp) and
//     SIGHUP            the terminal is gone            ends with status 128 + signal: 130, 143, 129
//     SIGQUIT           Ctrl-\                          removes what is half written, then ends with a core file
//     SIGXFSZ, SIGPIPE                                  ignored: the write fails, and its message says why
//
// At once, or with results: a command that has something to show holds an `Interruption` while it works. Then the
// signal is a wish that `asked_to_end()` tells, and the command ends with what it has. Another signal, a quarter of a
// second later, ends at once. timeout(1) sends its signal to the program and to its group, mpirun hands on what its
// ranks got from the terminal, too: what comes within that time is one wish.
//
// A signal that was ignored when the program started, as nohup ignores SIGHUP and a shell SIGINT for what it runs in
// the background, stays ignored.
//
// All threads block these signals and one waits for them [POSIX, sigwait], so that what is done on a signal is ordinary
// code: it may lock, allocate and print.
//
// Tests: tests/runtime/signals_test.cpp, tests/cli/signals_test.cpp
#pragma once

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include "core/rooms.hpp"

namespace pipewright::runtime {

// One, in main, before any thread is started.
class SignalGuard {
 public:
  // `words`: what a program that ends at once says, behind "interrupted (SIGINT): ".
  explicit SignalGuard(const std::string& words);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  void watch();

  sigset_t caught_{}, before_{};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// While it lives, the first signal is remembered for `asked_to_end()` and does not end the program.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool requested() const;
};

// While it lives, a program that ends at once says this instead of the guard's words.
class LastWords {
 public:
  explicit LastWords(const std::string& words);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  std::string before_;
};

}  // namespace pipewright::runtime
