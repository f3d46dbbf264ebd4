// What libraries call an error, in words for whoever typed the command.
#include "core/plain_words.hpp"

#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include <doctest/doctest.h>

#include "core/check.hpp"

using namespace pipewright::tests;

TEST_CASE("A system's number that says nothing is put into words") {
  CHECK(system_words(0) == "the system gives no reason");  // not "Success"
  CHECK(system_words(EAGAIN) == "no answer came in time");
  CHECK(system_words(EINPROGRESS) == "no answer came in time");
  CHECK(system_words(ENOENT) == "No such file or directory");
}

TEST_CASE("Errors of the library are rephrased with a way out, ours stay as they are") {
  CHECK(plain_words(InputError("x.yaml:1:1: no")) == "x.yaml:1:1: no");
  const std::string thread =
      plain_words(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  CHECK(thread.starts_with("no more threads can be started: "));
  CHECK(thread.find("--jobs") != std::string::npos);
  CHECK(plain_words(std::system_error(EIO, std::generic_category())) ==
        "the system refuses what this needs: Input/output error");
  CHECK(plain_words(std::filesystem::filesystem_error("cannot make absolute path", "x.txt",
                                                      std::error_code(ENOENT, std::generic_category()))) ==
        "x.txt: No such file or directory; check the path, and that the folder this command runs in is still there");
  CHECK(plain_words(std::bad_alloc()).starts_with("out of memory; ask for "));
  CHECK(plain_words(std::length_error("vector::_M_default_append")).starts_with("out of memory; "));
  CHECK(plain_words(std::out_of_range("map::at")) ==
        "a fault of pipewright itself (map::at); please report it with the command and the files that it reads");
}
