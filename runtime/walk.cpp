#include "runtime/walk.hpp"

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/cells.hpp"

namespace pipewright::runtime {
namespace {

// What a worker waits for, or what others wait for.
struct Event {
  enum class Kind : std::uint8_t { Receive, Send, Release, RowsOut, RowsIn } kind;
  int channel = -1;
  std::int32_t number = 0;  // of the channel's messages
};

// The events of a position in the order of its instructions.
class Program {
 public:
  Program(const RunPlan& run, const Lane& lane) : run_(run) {
    std::size_t cell = 1;
    for (std::size_t i = 0; i < lane.compute.size(); i += cell) {
      cell = cell_size(run, lane, i);
      if (lane.compute[i].kind == Kind::Update) continue;
      std::vector<std::size_t> next(cell);
      for (std::size_t op = i; op < i + cell; ++op) {
        const std::vector<Instruction>& line = run.line(lane.compute[op]);
        std::size_t& from = next[op - i];
        for (; from < line.size() && line[from].verb == Verb::Receive; ++from)
          add(lane.compute[op], line[from]);
      }
      for (const CellPart& part : parts_of_cell(run, lane, i, cell))
        for (std::size_t& at = next[part.op - i]; at < part.end; ++at)
          add(lane.compute[part.op], run.line(lane.compute[part.op])[at]);
    }
  }
  const std::vector<Event>& events() const { return events_; }

 private:
  void add(const Op& op, const Instruction& i) {
    const ChunkCode& code = run_.code[op.virtual_stage];
    const auto m = static_cast<MicroBatchId>(op.micro_batch);
    const auto message = [&](Event::Kind kind, bool arrives) {
      const auto other = static_cast<std::size_t>(i.other);
      const Port& port = i.forward == arrives ? code.in[other] : code.out[other];
      const RunPlan::Way way = run_.way(port.edge, i.forward, m);
      events_.push_back({kind, way.channel, way.number});
    };
    const auto input = std::tuple(static_cast<int>(op.virtual_stage), m, static_cast<int>(i.other));
    switch (i.verb) {
      case Verb::Receive:
        if (i.forward) held_.insert(input);
        message(Event::Kind::Receive, true);
        return;
      case Verb::Release:  // of what is held no more: nothing
        if (!i.forward || held_.erase(input) > 0) message(Event::Kind::Release, true);
        return;
      case Verb::Send: message(Event::Kind::Send, false); return;
      case Verb::ExchangeSend:
      case Verb::ExchangeReceive:
        if (run_.plan->expert_parallel > 1)
          events_.push_back({i.verb == Verb::ExchangeSend ? Event::Kind::RowsOut : Event::Kind::RowsIn});
        return;
      default: return;
    }
  }

  const RunPlan& run_;
  std::vector<Event> events_;
  std::set<std::tuple<int, MicroBatchId, int>> held_;
};

}  // namespace

bool runs_through(const RunPlan& run) {
  struct Channel {
    std::vector<char> sent, released;
  };
  struct Walker {
    std::vector<Event> events;
    std::size_t at = 0;
    int slots = 0, out = 0;  // of exchanges: slots, and rows that nobody has read yet
  };
  std::vector<Channel> channels;
  for (const RunChannel& channel : run.channels)
    channels.push_back(
        {std::vector<char>(channel.micro_batches.size()), std::vector<char>(channel.micro_batches.size())});
  std::vector<Walker> workers;
  for (PositionId p = 0; p < std::ssize(run.schedule->positions); ++p) {
    const int rows = run.between_copies(p, 1);
    workers.push_back({Program(run, run.schedule->positions[p]).events(), 0,
                       rows < 0 ? 0 : run.channels[static_cast<std::size_t>(rows)].slots, 0});
  }
  const auto goes_on = [&](Walker& worker, const Event& event) {
    const auto number = static_cast<std::size_t>(event.number);
    Channel* const channel = event.channel < 0 ? nullptr : &channels[static_cast<std::size_t>(event.channel)];
    switch (event.kind) {
      case Event::Kind::Receive: return channel->sent[number] != 0;
      case Event::Kind::Send: {
        const auto slots = static_cast<std::size_t>(run.channels[static_cast<std::size_t>(event.channel)].slots);
        if (number >= slots && channel->released[number - slots] == 0) return false;
        channel->sent[number] = 1;
        return true;
      }
      case Event::Kind::Release: channel->released[number] = 1; return true;
      case Event::Kind::RowsOut: return worker.out < worker.slots && ++worker.out > 0;
      case Event::Kind::RowsIn: return worker.out > 0 && --worker.out >= 0;
    }
    return true;
  };
  bool moved = true, all = false;
  while (moved && !all) {
    moved = false, all = true;
    for (Walker& worker : workers) {
      for (; worker.at < worker.events.size() && goes_on(worker, worker.events[worker.at]); ++worker.at)
        moved = true;
      all = all && worker.at == worker.events.size();
    }
  }
  return all;
}

}  // namespace pipewright::runtime
