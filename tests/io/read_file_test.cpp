#include "io/read/read_file.hpp"

#include <cstring>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

std::string file_refusal(const std::string& path) {
  return message_of([&] { read_file(path); });
}

}  // namespace

TEST_CASE("What is not a file is refused by its kind") {
  const Scratch scratch;
  const std::string folder = scratch.path("");
  CHECK(file_refusal(folder) == folder + ": is a directory; name a file in it");
  CHECK(file_refusal("/dev/zero") == "/dev/zero: is a device; name a text file");
  CHECK(file_refusal(scratch.path("no")) ==
        scratch.path("no") + ": cannot be read: No such file or directory; check the path");
  CHECK(file_refusal("no/such.yaml") ==
        "no/such.yaml: cannot be read: No such file or directory; check the path, it is relative to " +
            std::filesystem::current_path().string());
  CHECK(file_refusal("") == "an empty path; name a file");

  const std::string address = scratch.path("socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  REQUIRE(address.size() < sizeof(name.sun_path));
  std::memcpy(name.sun_path, address.c_str(), address.size() + 1);
  const int server = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(server, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0);
  CHECK(file_refusal(address) == address + ": is a socket; name a text file");
  close(server);
}

TEST_CASE("A FIFO without a writer is an error at once, one with a writer is read to its end") {
  const Scratch scratch;
  const std::string fifo = scratch.path("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(file_refusal(fifo) == fifo + ": is a FIFO without a writer; start the writer first, or name a file");

  const int keeps_open = open(fifo.c_str(), O_RDWR | O_CLOEXEC);  // a writer, before the reader comes
  std::thread writer([&] {
    const int out = open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
    // More than a pipe holds, so that it waits here until somebody reads, and never closes before.
    for (int i = 0; i < 20'000; ++i)
      if (write(out, "0123456789", 10) != 10) break;
    close(out);
    close(keeps_open);
  });
  CHECK(read_file(fifo).size() == 200'000);
  writer.join();
}

TEST_CASE("A byte-order mark at the head of a file is not part of its text, but of its bytes") {
  const Scratch scratch;
  const std::string mark = "\xef\xbb\xbf";
  CHECK(read_file(scratch.write("x", mark + "a,b\n")) == "a,b\n");
  CHECK(read_bytes(scratch.path("x")) == mark + "a,b\n");
  CHECK(read_file(scratch.write("x", "a" + mark)) == "a" + mark);
  CHECK(read_file(scratch.write("x", mark)).empty());
  CHECK(read_file(scratch.write("x", "\xef\xbb")) == "\xef\xbb");
}

TEST_CASE("Files over 8 MiB are refused, files of exactly 8 MiB are read") {
  const Scratch scratch;
  const std::string path = scratch.write("large", std::string(kLargestInput, 'x'));
  CHECK(read_file(path).size() == kLargestInput);
  scratch.write("large", std::string(10'000'000, 'x'));
  CHECK(file_refusal(path) == path + ": is larger than 8 MiB; split it, or write repeated layers once with repeat: N");
}
