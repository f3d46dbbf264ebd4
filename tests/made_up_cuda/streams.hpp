// Streams, worked off lazily: whoever calls finds them as far as they have come by then. Nothing runs in between.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace pipewright::tests::made_up_cuda {

// A record of an event: where the stream was then.
struct Moment {
  bool passed = false;
  std::int64_t at = 0;  // ns, once it has passed
};

struct Event {
  int device = 0;
  const void* context = nullptr;   // of an SM group; null: the GPU's primary one
  std::shared_ptr<Moment> moment;  // of its last record; null: none yet
};

struct Item {
  std::int64_t takes = 0;                 // ns, from when it was asked for and its turn comes
  std::function<void()> effect = {};      // at its end
  std::shared_ptr<Moment> reached = {};   // passes here
  std::shared_ptr<Moment> awaited = {};   // goes on once this has passed
  volatile std::int32_t* gate = nullptr;  // {open, gave up}: goes on once it is open, or after 10 s
  std::int64_t asked = 0;
};

struct Sms {
  int first = 0, count = 0;
};

struct Stream {
  int device = 0;
  std::vector<Sms> sms;           // where its kernels run
  const void* context = nullptr;  // of its SM group
  bool recording = false;
  std::vector<Item> recorded;
  std::deque<Item> items;  // asked for and not done
  std::int64_t free_at = 0;
  std::int64_t asked = 0, done = 0;  // items so far
};

class Streams {
 public:
  Stream* add();
  // It goes when it has done what was asked of it.
  void drop(Stream* stream);
  bool has(const Stream* stream) const;
  // All that has come to its end by `now`, in the order of the ends.
  void go_on(std::int64_t now);
  // When the next thing does so; nothing: all wait for what is not known yet.
  std::optional<std::int64_t> next_end(std::int64_t now) const;
  // Nothing of what was asked of this GPU is done any more.
  void clear(int device);
  const std::vector<std::unique_ptr<Stream>>& all() const { return streams_; }

 private:
  void end(Stream& stream, std::int64_t at);

  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<const Stream*> dropped_;
};

}  // namespace pipewright::tests::made_up_cuda
