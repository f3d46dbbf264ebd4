#include "tests/made_up_cuda/ledger.hpp"

#include <algorithm>
#include <sstream>

#include <sys/mman.h>

namespace pipewright::tests::made_up_cuda {
namespace {

std::size_t pages(std::int64_t bytes) {
  constexpr std::int64_t kPage = 4096;
  return static_cast<std::size_t>((std::max<std::int64_t>(bytes, 1) + kPage - 1) / kPage * kPage);
}

std::int64_t handed_out(std::int64_t bytes) {
  constexpr std::int64_t kStep = 512;
  return (std::max<std::int64_t>(bytes, 1) + kStep - 1) / kStep * kStep;
}

std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

std::string hexadecimal(const void* address) {
  std::ostringstream out;
  out << address;
  return out.str();
}

std::map<std::uintptr_t, Block>::const_iterator holder(const std::map<std::uintptr_t, Block>& blocks,
                                                       const void* address) {
  auto next = blocks.upper_bound(number(address));
  if (next == blocks.begin()) return blocks.end();
  --next;
  const auto size = static_cast<std::uintptr_t>(std::max<std::int64_t>(next->second.bytes, 1));
  return number(address) < next->first + size ? next : blocks.end();
}

}  // namespace

void* Ledger::new_block(std::int64_t bytes, int device, Place place) {
  void* const address =
      mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  const std::uintptr_t begin = number(address), end = begin + pages(bytes);
  std::erase_if(freed_,
                [&](const auto& old) { return old.first < end && begin < old.first + pages(old.second.bytes); });
  blocks_[begin] = {bytes, device, place};
  if (place == Place::Device) {
    bytes_[device] += handed_out(bytes);
    most_[device] = std::max(most_[device], bytes_[device]);
  }
  return address;
}

bool Ledger::free_block(const char* call, void* address, Place place) {
  const auto found = blocks_.find(number(address));
  if (found == blocks_.end() || found->second.place != place) {
    note(std::string(call) + " of " + hexadecimal(address) +
         (freed_.contains(number(address)) ? ", which was freed before" : ", which is not a block of its own"));
    return false;
  }
  if (place == Place::Device) bytes_[found->second.device] -= handed_out(found->second.bytes);
  munmap(address, pages(found->second.bytes));
  freed_[found->first] = found->second;
  blocks_.erase(found);
  return true;
}

std::int64_t Ledger::device_bytes(int device) const {
  const auto found = bytes_.find(device);
  return found == bytes_.end() ? 0 : found->second;
}

Block Ledger::block_of(const void* address) const {
  const auto found = holder(blocks_, address);
  return found == blocks_.end() ? Block{} : found->second;
}

bool Ledger::inside(const char* call, const void* address, std::int64_t bytes) {
  const auto found = holder(blocks_, address);
  const std::string what =
      std::string(call) + " of " + std::to_string(bytes) + " bytes at " + hexadecimal(address) + ": ";
  if (found == blocks_.end() || found->second.place != Place::Device) {
    note(what + (holder(freed_, address) != freed_.end() ? "of a block that was freed" : "not in the memory of a GPU"));
    return false;
  }
  const auto from = static_cast<std::int64_t>(number(address) - found->first);
  if (from + bytes <= found->second.bytes) return true;
  note(what + "from byte " + std::to_string(from) + " of a block of " + std::to_string(found->second.bytes));
  return false;
}

void Ledger::made(Kind kind, const void* handle) {
  handles_[handle] = kind;
}

bool Ledger::lives(Kind kind, const void* handle) const {
  const auto found = handles_.find(handle);
  return found != handles_.end() && found->second == kind;
}

bool Ledger::destroyed(const char* call, Kind kind, const void* handle) {
  if (lives(kind, handle)) {
    handles_.erase(handle);
    return true;
  }
  note(std::string(call) + " of a handle that is none, or is gone");
  return false;
}

void Ledger::note(const std::string& misuse) {
  constexpr std::size_t kMost = 100;
  if (misuse_.size() < kMost) misuse_.push_back(misuse);
}

std::string Ledger::report() const {
  std::ostringstream out;
  for (const auto& [name, times] : calls_)
    out << "calls " << name << ' ' << times << '\n';
  std::int64_t bytes = 0, most = 0, pinned = 0;
  for (const auto& [device, held] : bytes_)
    bytes += held;
  for (const auto& [device, held] : most_)
    most = std::max(most, held);
  for (const auto& [address, block] : blocks_)
    pinned += block.place == Place::Pinned;
  out << "left device_bytes " << bytes << "\nleft pinned_blocks " << pinned << '\n';
  const char* const names[] = {"streams", "events", "graphs", "contexts"};
  for (const Kind kind : {Kind::Stream, Kind::Event, Kind::Graph, Kind::Context})
    out << "left " << names[static_cast<std::size_t>(kind)] << ' '
        << std::count_if(handles_.begin(), handles_.end(), [&](const auto& one) { return one.second == kind; }) << '\n';
  out << "most device_bytes " << most << '\n';
  for (const std::string& line : misuse_)
    out << "misuse " << line << '\n';
  return out.str();
}

}  // namespace pipewright::tests::made_up_cuda
