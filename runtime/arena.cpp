#include "runtime/arena.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.hpp"

namespace pipewright::runtime {

Arena::Arena(Bytes alignment, Bytes cap) : alignment_(alignment.value), cap_(cap.value) {
  PP_CHECK(alignment_ > 0 && cap_ >= 0);
}

void Arena::add_gap(std::int64_t begin, std::int64_t end) {
  gaps_.emplace(begin, end);
  by_size_.emplace(end - begin, begin);
}

void Arena::take_gap(std::map<std::int64_t, std::int64_t>::iterator gap) {
  by_size_.erase({gap->second - gap->first, gap->first});
  gaps_.erase(gap);
}

std::int64_t Arena::allocate(Bytes bytes, Tag tag) {
  PP_CHECK(bytes.value >= 0);
  const std::int64_t size = std::max(alignment_, (bytes.value + alignment_ - 1) / alignment_ * alignment_);
  std::int64_t address = end_;
  if (const auto fit = by_size_.lower_bound({size, 0}); fit != by_size_.end()) {
    address = fit->second;
    const auto gap = gaps_.find(address);
    const std::int64_t end = gap->second;
    take_gap(gap);
    if (address + size < end) add_gap(address + size, end);
  } else {
    if (cap_ > 0 && end_ + size > cap_) {
      ArenaUse now{by_tag_, live_, {end_}};
      throw OutOfArena(fmt::format("{} B more ({}) would end at {} B of {} B; held: {}{}", size,
                                   kTagNames[static_cast<int>(tag)], end_ + size, cap_, text(now),
                                   gaps_.empty() ? "" : "; the rest lies in gaps that are too small"));
    }
    end_ += size;
  }
  used_.emplace(address, Block{size, tag});
  live_ += Bytes{size};
  by_tag_[static_cast<std::size_t>(tag)] += Bytes{size};
  if (live_ > peak_.live) peak_.live = live_, peak_.by_tag = by_tag_;
  peak_.extent = std::max(peak_.extent, Bytes{end_});
  return address;
}

void Arena::free(std::int64_t address) {
  const auto found = used_.find(address);
  PP_CHECK(found != used_.end());
  const Block block = found->second;
  used_.erase(found);
  live_ -= Bytes{block.bytes};
  by_tag_[static_cast<std::size_t>(block.tag)] -= Bytes{block.bytes};
  std::int64_t begin = address, end = address + block.bytes;
  if (const auto next = gaps_.find(end); next != gaps_.end()) {
    end = next->second;
    take_gap(next);
  }
  if (auto before = gaps_.lower_bound(begin); before != gaps_.begin()) {
    --before;
    if (before->second == begin) {
      begin = before->first;
      take_gap(before);
    }
  }
  if (end == end_)
    end_ = begin;
  else
    add_gap(begin, end);
}

std::string text(const ArenaUse& use) {
  std::string parts;
  for (int tag = 0; tag < kTags; ++tag)
    if (const Bytes bytes = use.by_tag[static_cast<std::size_t>(tag)]; bytes.value > 0)
      parts +=
          fmt::format("{}{} {} B", parts.empty() ? "" : ", ", kTagNames[static_cast<std::size_t>(tag)], bytes.value);
  return parts.empty() ? "nothing" : parts;
}

}  // namespace pipewright::runtime
