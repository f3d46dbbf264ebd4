// What lies where and who has it: blocks of memory, handles, calls; and what was done wrongly with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pipewright::tests::made_up_cuda {

enum class Place : std::uint8_t { Device, Pinned, Elsewhere };

struct Block {
  std::int64_t bytes = 0;  // as asked for
  int device = 0;
  Place place = Place::Elsewhere;
};

// Whatever is made and destroyed by a handle.
enum class Kind : std::uint8_t { Stream, Event, Graph, Context };

class Ledger {
 public:
  // nullptr: the host has no memory for it.
  void* new_block(std::int64_t bytes, int device, Place place);
  // False, and noted, where it is no block of that place.
  bool free_block(const char* call, void* address, Place place);
  std::int64_t device_bytes(int device) const;  // rounded as the driver hands them out
  // The block that an address is of; Elsewhere: the host's own memory.
  Block block_of(const void* address) const;
  // All of it in one block of the device; else noted.
  bool inside(const char* call, const void* address, std::int64_t bytes);

  void made(Kind kind, const void* handle);
  bool lives(Kind kind, const void* handle) const;
  // False, and noted, where there is none such.
  bool destroyed(const char* call, Kind kind, const void* handle);

  long count(const std::string& call) { return ++calls_[call]; }
  void note(const std::string& misuse);
  void forgive() { misuse_.clear(); }
  const std::vector<std::string>& misuse() const { return misuse_; }

  // Lines "calls cudaMalloc 12", "left device_bytes 0", "most device_bytes 4096", "misuse ...".
  std::string report() const;

 private:
  std::map<std::uintptr_t, Block> blocks_, freed_;
  std::map<const void*, Kind> handles_;
  std::map<std::string, long> calls_;
  std::vector<std::string> misuse_;
  std::map<int, std::int64_t> bytes_, most_;
};

}  // namespace pipewright::tests::made_up_cuda
