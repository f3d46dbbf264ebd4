#include "runtime/transports/nccl.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/plan/op_index.hpp"

namespace pipewright::runtime {
namespace {

using Clock = std::chrono::steady_clock;

WorkerId worker_at(const RunPlan& run, int copy, PositionId position) {
  return copy * run.plan->positions() + position;
}

class NcclEndpoint final : public Transport {
 public:
  NcclEndpoint(std::unique_ptr<Transport> words, const RunPlan& run, WorkerId self,
               std::shared_ptr<const NcclLibrary> library, const std::vector<NcclId>& ids, NcclQueueMaker queue,
               double timeout_s)
      : words_(std::move(words)),
        run_(run),
        self_(self),
        library_(std::move(library)),
        ids_(ids),
        queue_of_(std::move(queue)),
        timeout_s_(timeout_s) {}
  ~NcclEndpoint() override { end(); }

  void bind(std::vector<std::vector<std::byte*>> slots, Movers movers) override {
    if (movers.worker == nullptr) {  // the run is over
      end();
      words_->bind({}, {});
      return;
    }
    movers_ = movers;
    memory_ = slots;
    for (std::size_t c = 0; c < slots.size(); ++c)
      released_[static_cast<int>(c)].resize(slots[c].size());
    words_->bind(std::move(slots), movers);  // what they lead to is the device's: words have no body
    try {
      join();
    } catch (...) {
      stopped_ = true;  // nobody waits for an orderly end,
      end();            // nor the worker's memory for what is still on the device
      throw;
    }
  }

  Sent send(const MessageSlot& message, std::span<const Piece> pieces) override {
    begin(message);
    movers_.worker->finish();  // what the device still computes is no waiting
    const Sent sent = words_->send(message, {});
    const WorkerId to = worker_at(run_, copy_, channel(message).to);
    if (to == self_) {
      for (const Piece& piece : pieces)
        movers_.worker->copy(memory(message) + piece.offset, piece.from, {piece.bytes});
      movers_.worker->finish();
      return sent;
    }
    parts_.clear();
    for (const Piece& piece : pieces)
      parts_.push_back({const_cast<std::byte*>(piece.from), piece.bytes});
    Link& link = to_.at(to);
    link.comm->send(parts_, 1, link.queue->stream());
    const auto what = [&] { return fmt::format("worker {} to take a message by NCCL", to); };
    wait_for_queue(link, what);
    return sent;
  }

  std::byte* receive(const MessageSlot& message) override {
    begin(message);
    words_->receive(message);
    const WorkerId from = worker_at(run_, copy_, channel(message).from);
    if (from == self_) return memory(message);
    Incoming& incoming = from_.at(from);
    const Asked& asked = asked_[{message.channel, message.slot}];
    PP_CHECK(asked.number == message.number);  // its sender knew that the slot was free
    wait(
        incoming.link, [&] { return incoming.link.queue->passed(asked.mark); },
        [&] { return fmt::format("a message of worker {} by NCCL", from); });
    return memory(message);
  }

  void release(const MessageSlot& message) override {
    released_[message.channel][static_cast<std::size_t>(message.slot)] = message.number;
    const WorkerId from = worker_at(run_, copy_, channel(message).from);
    if (from != self_) ask(from_.at(from));
    words_->release(message);
  }

  void all_reduce(int, std::span<const WorkerId> members, float* data, std::int64_t elements) override {
    Link& link = sums_.at({members.begin(), members.end()});
    movers_.collective->finish();
    link.comm->all_reduce(data, elements, link.queue->stream());
    wait_for_queue(link, [] { return std::string("the other members of an all-reduce by NCCL"); });
  }

  void all_gather(int, std::span<const WorkerId> members, std::byte* data,
                  std::span<const std::int64_t> begin) override {
    Link& link = gathers_.at({members.begin(), members.end()});
    movers_.gathers->finish();
    exchange(link, members, data, begin);
    wait_for_queue(link, [] { return std::string("the other members of an all-gather by NCCL"); });
  }

  void meet() override { words_->meet(); }
  void check_asked_to_end() const override { words_->check_asked_to_end(); }
  void stop(const std::string& why) noexcept override {
    stopped_ = true;
    words_->stop(why);
  }

 private:
  // A communicator and the queue that its work of this process goes to, which outlives it.
  struct Link {
    std::shared_ptr<NcclQueue> queue;
    std::unique_ptr<NcclComm> comm;
  };
  struct Incoming {
    Link link;
    std::vector<NcclMessage> messages;  // of a step
    std::size_t next = 0;               // the first of them that has not been asked for
  };
  struct Asked {
    std::int64_t number = 0, mark = 0;
  };

  const RunChannel& channel(const MessageSlot& message) const {
    return run_.channels[static_cast<std::size_t>(message.channel)];
  }
  std::byte* memory(const MessageSlot& message) const {
    return memory_[static_cast<std::size_t>(message.channel)][static_cast<std::size_t>(message.slot)];
  }

  // Parts are of different lengths, which ncclAllGather does not know.
  void exchange(Link& link, std::span<const WorkerId> members, std::byte* data, std::span<const std::int64_t> begin) {
    NcclTogether together(library_);
    for (std::size_t from = 0; from < members.size(); ++from) {
      const NcclPart part{data + begin[from], begin[from + 1] - begin[from]};
      if (part.bytes == 0) continue;
      if (members[from] != self_) {
        link.comm->receive({&part, 1}, static_cast<int>(from), link.queue->stream());
        continue;
      }
      for (std::size_t to = 0; to < members.size(); ++to)
        if (to != from) link.comm->send({&part, 1}, static_cast<int>(to), link.queue->stream());
    }
    together.end();
  }

  // Every pair exchanges a first message at once, every set of members a sum: NCCL connects two members when they first
  // use a communicator, and waits for both. Later a receive must wait for nobody but the device.
  void join() {
    const auto groups = nccl_groups(run_);
    PP_CHECK(groups.size() == ids_.size());
    const std::int64_t bytes = 64 * std::int64_t{run_.plan->workers()};
    first_ = movers_.worker->staging({bytes});
    std::memset(first_->base(), 0, static_cast<std::size_t>(bytes));
    std::map<Mover*, std::shared_ptr<NcclQueue>> queues;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::vector<WorkerId>& members = groups[g].members;
      const auto found = std::ranges::find(members, self_);
      if (found == members.end()) continue;
      const auto rank = static_cast<int>(found - members.begin());
      const bool receives = groups[g].pair && rank == 1;
      Mover* const mover = groups[g].pair ? movers_.worker : groups[g].gathers ? movers_.gathers : movers_.collective;
      std::shared_ptr<NcclQueue>& shared = queues[mover];
      if (shared == nullptr && !receives) shared = queue_of_(*mover, NcclPlace::Own);
      Link link{receives ? queue_of_(*movers_.worker, NcclPlace::Beside) : shared, nullptr};
      link.comm = std::make_unique<NcclComm>(library_, ids_[g], static_cast<int>(members.size()), rank);
      const auto what = [&] { return fmt::format("{} to join by NCCL", others(members)); };
      wait(
          link, [] { return true; }, what);
      const NcclPart part{first_->base(), 64};
      std::vector<std::int64_t> begin;
      for (std::size_t i = 0; i <= members.size(); ++i)
        begin.push_back(64 * static_cast<std::int64_t>(i));
      if (groups[g].gathers)
        exchange(link, members, first_->base(), begin);
      else if (!groups[g].pair)
        link.comm->all_reduce(reinterpret_cast<float*>(first_->base()), 16, link.queue->stream());
      else if (receives)
        link.comm->receive({&part, 1}, 0, link.queue->stream());
      else
        link.comm->send({&part, 1}, 1, link.queue->stream());
      wait_for_queue(link, what);
      if (receives)
        from_[members[0]] = {std::move(link), nccl_messages(run_, members[0], self_)};
      else if (groups[g].pair)
        to_[members[1]] = std::move(link);
      else
        (groups[g].gathers ? gathers_ : sums_)[members] = std::move(link);
    }
  }

  std::string others(const std::vector<WorkerId>& members) const {
    std::string text = members.size() == 2 ? "worker" : "workers";
    for (const WorkerId member : members)
      if (member != self_) text += fmt::format("{}{}", text.ends_with('r') || text.ends_with('s') ? " " : ", ", member);
    return text;
  }

  // The first word of a step: all slots are free then.
  void begin(const MessageSlot& message) {
    const auto in_step = static_cast<std::int64_t>(channel(message).micro_batches.size());
    const std::int64_t step = (message.number - 1) / in_step;
    if (std::exchange(step_, step) == step) return;
    for (auto& [from, incoming] : from_) {
      incoming.next = 0;
      ask(incoming);
    }
  }

  // For what a sender may send next, as far as slots are free.
  void ask(Incoming& incoming) {
    for (; incoming.next < incoming.messages.size(); ++incoming.next) {
      const NcclMessage& message = incoming.messages[incoming.next];
      const RunChannel& channel = run_.channels[static_cast<std::size_t>(message.channel)];
      const auto slot = static_cast<std::size_t>(message.number % channel.slots);
      const std::int64_t number = step_ * static_cast<std::int64_t>(channel.micro_batches.size()) + message.number + 1;
      if (message.number >= channel.slots && released_[message.channel][slot] < number - channel.slots) return;
      std::byte* const at = memory_[static_cast<std::size_t>(message.channel)][slot];
      parts_.clear();
      for (const NcclMessage::Part& part : message.parts)
        parts_.push_back({at + part.offset, part.bytes});
      incoming.link.comm->receive(parts_, 0, incoming.link.queue->stream());
      wait(
          incoming.link, [] { return true; }, [] { return std::string("NCCL to queue a receive"); });
      asked_[{message.channel, static_cast<int>(slot)}] = {number, incoming.link.queue->mark()};
    }
  }

  // For all that the communicator was asked for.
  template <class What>
  void wait_for_queue(Link& link, const What& what) {
    wait(
        link, [] { return true; }, what);
    const std::int64_t mark = link.queue->mark();
    wait(
        link, [&] { return link.queue->passed(mark); }, what);
  }

  // Waits until the communicator has queued what it was asked for, and `done`.
  template <class Done, class What>
  void wait(Link& link, const Done& done, const What& what) {
    const auto late = Clock::now() + std::chrono::duration<double>(timeout_s_);
    for (std::int64_t round = 0;; ++round) {
      if (is_settled(link, what) && done()) return;
      if (stopped_.load(std::memory_order_relaxed)) throw Stopped("this worker has failed");
      if (round % 64 != 63) continue;
      if (watch_ != nullptr) watch_->check(what());
      if (Clock::now() > late)
        throw PeerSilent(fmt::format("nothing heard for {} s while waiting for {}{}", timeout_s_, what(),
                                     watch_ != nullptr ? watch_->who_is_silent() : ""));
      if (round > 4096) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  // A member that fails takes its communicators with it, and says why by the wire: that is what counts, if it comes.
  template <class What>
  bool is_settled(Link& link, const What& what) {
    try {
      return link.comm->settled();
    } catch (const NcclError& error) {
      const auto end = Clock::now() + std::chrono::seconds(watch_ != nullptr ? 1 : 0);
      while (Clock::now() < end) {
        watch_->check(what());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      throw NcclError(fmt::format("{} while waiting for {}", error.what(), what()));
    }
  }

  // Everybody comes here at once behind a run that went well; else nobody waits.
  void end() noexcept {
    std::vector<NcclComm*> comms;
    for (auto& [to, link] : to_)
      comms.push_back(link.comm.get());
    for (auto& [from, incoming] : from_)
      comms.push_back(incoming.link.comm.get());
    for (auto* const all : {&gathers_, &sums_})
      for (auto& [members, link] : *all)
        comms.push_back(link.comm.get());
    if (!stopped_) try {
        for (NcclComm* const comm : comms)
          comm->finish();
        const auto late = Clock::now() + std::chrono::duration<double>(std::min(5.0, timeout_s_));
        for (NcclComm* const comm : comms)
          while (!comm->settled() && Clock::now() < late) {
            if (watch_ != nullptr) watch_->check("the end of the run");
            std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
      } catch (const std::exception&) {  // they are aborted
      }
    close_at_once(comms);
    to_.clear(), from_.clear(), gathers_.clear(), sums_.clear(), first_.reset();
  }

  // All together: to abort one may wait for the whole device, on which an operation of another still runs until that
  // one is aborted, too.
  static void close_at_once(const std::vector<NcclComm*>& comms) noexcept {
    std::vector<std::thread> closing;
    for (NcclComm* const comm : comms)
      try {
        closing.emplace_back([comm] { comm->close(); });
      } catch (const std::exception&) {  // no thread to be had
        comm->close();
      }
    for (std::thread& one : closing)
      one.join();
  }

  std::unique_ptr<Transport> words_;
  RunWatch* watch_ = dynamic_cast<RunWatch*>(words_.get());
  const RunPlan& run_;
  WorkerId self_;
  int copy_ = self_ / run_.plan->positions();
  std::shared_ptr<const NcclLibrary> library_;
  std::vector<NcclId> ids_;
  NcclQueueMaker queue_of_;
  double timeout_s_;
  std::atomic<bool> stopped_{false};
  Movers movers_;
  std::vector<std::vector<std::byte*>> memory_;        // of slots: [channel][slot]
  std::map<int, std::vector<std::int64_t>> released_;  // [channel][slot]: the last message that was read there
  std::map<std::pair<int, int>, Asked> asked_;         // by channel and slot
  std::map<WorkerId, Link> to_;                        // of the worker's thread
  std::map<WorkerId, Incoming> from_;                  // likewise
  std::map<std::vector<WorkerId>, Link> gathers_;      // by members; of the thread that gathers
  std::map<std::vector<WorkerId>, Link> sums_;         // by members; of the collective stream
  std::unique_ptr<DeviceMemory> first_;
  std::vector<NcclPart> parts_;
  std::int64_t step_ = -1;
};

}  // namespace

std::vector<NcclGroup> nccl_groups(const RunPlan& run) {
  std::vector<NcclGroup> groups;
  std::set<std::pair<WorkerId, WorkerId>> pairs;
  std::set<std::vector<WorkerId>> sums, gathers;
  for (int copy = 0; copy < run.plan->copies(); ++copy)
    for (const RunChannel& channel : run.channels)
      if (channel.from != channel.to)
        pairs.insert({worker_at(run, copy, channel.from), worker_at(run, copy, channel.to)});
  for (const auto& [from, to] : pairs)
    groups.push_back({{from, to}, true});
  for (std::size_t v = 0; v < run.chunks.size(); ++v)
    if (run.chunks[v].members > 1) {
      const std::vector<WorkerId> members = holders(run.schedule->seating(), static_cast<VirtualStageId>(v));
      sums.insert(members);
      if (run.chunks[v].parts > 1) gathers.insert(members);
    }
  for (const auto& members : sums)
    groups.push_back({members, false});
  for (const auto& members : gathers)
    groups.push_back({members, false, true});
  return groups;
}

// As Worker::send goes through them.
std::vector<NcclMessage> nccl_messages(const RunPlan& run, WorkerId from, WorkerId to) {
  const PositionId position = from % run.plan->positions(), receiver = to % run.plan->positions();
  std::vector<NcclMessage> all;
  for (const Op& op : run.schedule->positions[position].compute) {
    if (op.kind == Kind::Update) continue;
    const ChunkCode& code = run.code[op.virtual_stage];
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    for (const Instruction& i : code.line(op.kind, recomputed(run.schedule->shape, op.virtual_stage, m))) {
      if (i.verb != Verb::Send) continue;
      const Port& port = (i.forward ? code.out : code.in)[static_cast<std::size_t>(i.other)];
      const RunPlan::Way way = run.way(port.edge, i.forward, m);
      if (run.channels[static_cast<std::size_t>(way.channel)].to != receiver) continue;
      NcclMessage message{way.channel, way.number, {}};
      const std::size_t size = run.size_of(m);
      for (const PortTensor& tensor : port.tensors)
        if ((i.forward ? tensor.value : tensor.gradient) >= 0)
          message.parts.push_back({i.forward ? tensor.offset[size] : tensor.gradient_offset[size], tensor.bytes[size]});
      all.push_back(std::move(message));
    }
  }
  return all;
}

std::unique_ptr<Transport> nccl_transport(std::unique_ptr<Transport> words, const RunPlan& run, WorkerId self,
                                          std::shared_ptr<const NcclLibrary> library, const std::vector<NcclId>& ids,
                                          NcclQueueMaker queue, double timeout_s) {
  return std::make_unique<NcclEndpoint>(std::move(words), run, self, std::move(library), ids, std::move(queue),
                                        timeout_s);
}

}  // namespace pipewright::runtime
