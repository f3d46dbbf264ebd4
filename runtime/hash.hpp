// Two hashes: of short things that must be alike in two places, and of long ones, eight bytes at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/ids.hpp"
#include "runtime/data.hpp"

namespace pipewright::runtime {

// FNV-1a [FNV].
class Hash {
 public:
  Hash& add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
    return *this;
  }
  Hash& add(const std::string& text) { return add(text.size()).add(std::as_bytes(std::span(text))); }
  Hash& add(std::integral auto number) {
    const auto wide = static_cast<std::int64_t>(number);
    return add(std::as_bytes(std::span(&wide, 1)));
  }
  template <class Kind>
  Hash& add(Id<Kind> id) {
    return add(int{id});
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

// SplitMix64's finaliser [Steele14] over words of 8 bytes, each on top of what came before; the last one is filled up
// with zeros, and the number of bytes follows it. The finaliser is a bijection: one word that differs always shows.
class Checksum {
 public:
  Checksum& add(std::span<const std::byte> bytes) {
    count_ += bytes.size();
    for (; held_ > 0 && !bytes.empty(); bytes = bytes.subspan(1))
      hold(bytes.front());
    for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof word);
      value_ = mixed(value_ ^ word);
    }
    for (const std::byte byte : bytes)
      hold(byte);
    return *this;
  }
  std::uint64_t value() const { return mixed(mixed(value_ ^ word_) ^ count_); }

 private:
  void hold(std::byte byte) {
    word_ |= static_cast<std::uint64_t>(byte) << (8 * held_);
    if (++held_ < 8) return;
    value_ = mixed(value_ ^ word_);
    word_ = 0, held_ = 0;
  }
  std::uint64_t value_ = 0, word_ = 0, count_ = 0;
  int held_ = 0;  // bytes of `word_`
};

}  // namespace pipewright::runtime
