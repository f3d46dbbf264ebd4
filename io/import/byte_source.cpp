#include "io/import/byte_source.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <zlib.h>

#include "io/text/utf8.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr std::size_t kHead = 3;  // bytes that tell what a file is: gzip's first two, a byte-order mark's three

// Pipes give as few bytes at a time as they like: reads until there are `least`, or no more come.
std::size_t at_least(std::size_t least, const auto& read_behind) {
  std::size_t count = 0;
  for (std::size_t more = 1; count < least && more > 0; count += more)
    more = read_behind(count);
  return count;
}

}  // namespace

class ByteSource::Gunzip {
 public:
  Gunzip() {
    constexpr int kGzip = 15 + 16;  // largest window, gzip header
    PP_CHECK(inflateInit2(&stream, kGzip) == Z_OK);
  }
  ~Gunzip() { inflateEnd(&stream); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  z_stream stream{};
  std::int64_t read = 0;        // packed bytes that were handed to it
  bool between_members = true;  // a file may end here
  bool padding = false;         // zeros have come behind a member: tapes and some copiers fill a block with them
};

ByteSource::ByteSource(const std::string& path) : file_(path), packed_(kPiece, '\0') {}
ByteSource::~ByteSource() = default;

// Unpacks into `plain_` behind its first `from` bytes; how many, 0: the end.
std::size_t ByteSource::unpacked(std::size_t from) {
  z_stream& stream = gunzip_->stream;
  const auto damaged = [&](const char* what) {
    throw InputError(fmt::format("{}: byte {} of the gzip data: {}; copy the file again, or unpack it with gunzip",
                                 name(), gunzip_->read - stream.avail_in, what));
  };
  const std::size_t room = plain_.size() - from;
  stream.next_out = reinterpret_cast<Bytef*>(plain_.data() + from);
  stream.avail_out = static_cast<uInt>(room);
  while (stream.avail_out == room) {
    if (stream.avail_in == 0) {
      const std::size_t more = file_.read(packed_);
      if (more == 0) {
        if (!gunzip_->between_members) damaged("they end before their stream does, the file is cut off");
        return 0;
      }
      gunzip_->read += static_cast<std::int64_t>(more);
      stream.next_in = reinterpret_cast<Bytef*>(packed_.data());
      stream.avail_in = static_cast<uInt>(more);
    }
    if (gunzip_->between_members && stream.total_in > 0) {
      while (stream.avail_in > 0 && *stream.next_in == 0)
        ++stream.next_in, --stream.avail_in, gunzip_->padding = true;
      if (stream.avail_in == 0) continue;
      if (gunzip_->padding || *stream.next_in != 0x1f) damaged("something that is not gzip data follows them");
      PP_CHECK(inflateReset(&stream) == Z_OK);
    }
    gunzip_->between_members = false;
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status == Z_STREAM_END)
      gunzip_->between_members = true;
    else if (status != Z_OK && status != Z_BUF_ERROR)
      damaged("they are damaged");
  }
  return room - stream.avail_out;
}

bool ByteSource::fill() {
  if (ended_) return false;
  before_ += end_ - begin_;
  begin_ = at_ = end_ = nullptr;
  const std::size_t least = opened_ ? 1 : kHead;
  std::size_t count = 0;
  if (gunzip_ == nullptr)
    count = at_least(least, [&](std::size_t from) { return file_.read(std::span(packed_).subspan(from)); });
  if (!opened_ && count >= 2 && packed_[0] == '\x1f' && packed_[1] == '\x8b') {
    gunzip_ = std::make_unique<Gunzip>();
    gunzip_->read = static_cast<std::int64_t>(count);
    gunzip_->stream.next_in = reinterpret_cast<Bytef*>(packed_.data());
    gunzip_->stream.avail_in = static_cast<uInt>(count);
    plain_.resize(4 * kPiece);
  }
  if (gunzip_ != nullptr) count = at_least(least, [&](std::size_t from) { return unpacked(from); });
  ended_ = count == 0;
  begin_ = at_ = gunzip_ != nullptr ? plain_.data() : packed_.data();
  end_ = begin_ + count;
  if (!opened_) at_ = end_ - without_byte_order_mark({begin_, count}).size(), line_begin_ = at_ - begin_;
  opened_ = true;
  if (before_ + static_cast<std::int64_t>(count) > kLargestImport)
    throw InputError(fmt::format("{}: has more than {} GiB{}; keep fewer steps of it", name(), kLargestImport >> 30,
                                 gunzip_ != nullptr ? " unpacked" : ""));
  return at_ < end_;
}

Place ByteSource::place() const {
  const auto number = [](std::int64_t value) {
    return static_cast<int>(std::min<std::int64_t>(value, std::numeric_limits<int>::max()));
  };
  return {name(), number(line_), number(std::max<std::int64_t>(1, bytes() - line_begin_))};
}

}  // namespace pipewright::io
