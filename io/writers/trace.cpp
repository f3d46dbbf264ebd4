// Chrome trace events, for https://ui.perfetto.dev.
//
// One process per worker, one thread per stream: compute, all-reduce, all-gather, send, recv. Slices of one thread never
// overlap (a viewer would move or drop them), so messages that do overlap get a thread per peer. Arrows join the two ends of a
// message. ts and dur are microseconds with three decimals, cut out of whole nanoseconds. Two answers in one document:
// every worker is two processes, one above the other.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "io/text/quote.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/trace_text.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

constexpr int kCompute = 0, kFirstStream = 1;  // thread ids; messages come behind the streams

enum class End { Send, Recv };

// One end of a message as a slice on its worker's timeline.
struct Slice {
  std::size_t transfer = 0;
  WorkerId peer = 0;
  Time start, end;
  int thread = 0;
};

// When a message occupies its sender: on the wire. Its receiver sees the same stretch later by the latency, so that
// messages that follow one another on a channel do so at both ends. A message of pure latency is seen on its way.
Slice slice(const Transfer& t, std::size_t index, End end) {
  const Time wire = t.sent - t.start;
  if (wire.value == 0) return {index, end == End::Send ? t.to : t.from, t.start, t.arrived};
  return end == End::Send ? Slice{index, t.to, t.start, t.sent} : Slice{index, t.from, t.arrived - wire, t.arrived};
}

// The answers of one document share its text; each has processes and arrows with numbers of its own.
struct Document {
  TraceText text;
  bool first = true;  // no event yet
  WorkerId processes = 0;
  std::size_t arrows = 0;
};

void begin(Document& document, const Answer& answer) {
  const Scenario& scenario = *answer.scenario;
  document.text << fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"tool\":\"pipewright\",\"version\":\"{}\",\"scenario\":{},"
      "\"question\":{},\"engine\":{}}},\"traceEvents\":[",
      PIPEWRIGHT_VERSION, json_string(scenario.file.empty() ? scenario.name : scenario.file),
      json_string(question(answer)), json_string(name(answer.timeline.engine)));
}

std::string end(Document& document) {
  document.text << "\n]}\n";
  return std::move(document.text).take();
}

// How the processes of an answer stand among those of others.
struct TracePlace {
  std::string prefix;           // of their names: "predicted: "
  int number = 0, answers = 1;  // among the answers of the document
};

class Trace {
 public:
  Trace(const Answer& answer, Document& document, TracePlace place = {})
      : answer_(answer),
        document_(document),
        text_(document.text),
        place_(std::move(place)),
        messages_(answer.timeline.workers.size()),
        instant_(messages_.size()) {}

  // Room for the text; too little costs time only. Events take 90 to 220 bytes each.
  std::size_t estimated_size() const {
    constexpr std::size_t kOp = 170, kMessage = 600, kPoint = 160;
    return 4096 + op_count(answer_) * (kOp + kPoint) + answer_.timeline.transfers.size() * (kMessage + kPoint);
  }

  void print() {
    index_passes();
    name_messages();
    describe_chunks();
    sort_messages();
    const auto memory_series = series(answer_.memory, answer_.schedule, answer_.costs, answer_.timeline);
    for (std::size_t w = 0; w < answer_.timeline.workers.size(); ++w) {
      const auto worker = static_cast<WorkerId>(w);
      processes(worker);
      ops(worker);
      messages(worker);
      arrows_from(worker);
      memory(worker, memory_series[w]);
    }
    document_.processes += static_cast<WorkerId>(answer_.timeline.workers.size());
    document_.arrows += answer_.timeline.transfers.size();
  }

 private:
  using Slices = std::array<std::vector<Slice>, 2>;                // by End
  using PassKey = std::tuple<bool, VirtualStageId, MicroBatchId>;  // forward?, chunk, micro-batch

  TraceText& event() {
    text_ << (document_.first ? "\n" : ",\n");
    document_.first = false;
    return text_;
  }
  WorkerId pid(WorkerId w) const { return document_.processes + w; }

  // A message that takes time is a slice at both ends; one that takes none is an arrow from op to op.
  static bool takes_time(const Transfer& t) { return t.arrived > t.posted; }

  void sort_messages() {
    const auto& transfers = answer_.timeline.transfers;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].from == transfers[i].to) continue;
      if (!takes_time(transfers[i])) {
        instant_[static_cast<std::size_t>(transfers[i].from)].push_back(i);
        continue;
      }
      messages_[static_cast<std::size_t>(transfers[i].from)][0].push_back(slice(transfers[i], i, End::Send));
      messages_[static_cast<std::size_t>(transfers[i].to)][1].push_back(slice(transfers[i], i, End::Recv));
    }
    for (auto& ends : messages_)
      for (auto& slices : ends)
        std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
          return std::pair(a.start, a.end) < std::pair(b.start, b.end);
        });
  }

  static bool overlap(const std::vector<Slice>& slices) {
    for (std::size_t i = 1; i < slices.size(); ++i)
      if (slices[i].start < slices[i - 1].end) return true;
    return false;
  }

  // Threads for one direction: one; one per peer where messages overlap; more where those of one peer do.
  std::vector<std::string> assign_threads(std::vector<Slice>& slices, std::string_view verb, int first) {
    if (!overlap(slices)) {
      for (Slice& s : slices)
        s.thread = first;
      return slices.empty() ? std::vector<std::string>{} : std::vector<std::string>{std::string(verb)};
    }
    struct Track {
      int thread;
      Time free;
    };
    std::map<WorkerId, std::vector<Track>> tracks;
    std::vector<std::string> names;
    for (Slice& s : slices) {
      auto& mine = tracks[s.peer];
      auto free = std::ranges::find_if(mine, [&](const Track& t) { return t.free <= s.start; });
      if (free == mine.end()) {
        names.push_back(fmt::format("{} {}{}", verb, worker_name(answer_, s.peer),
                                    mine.empty() ? "" : fmt::format(" ({})", mine.size() + 1)));
        free = mine.insert(mine.end(), {first + static_cast<int>(names.size()) - 1, s.start});
      }
      s.thread = free->thread;
      free->free = s.end;
    }
    return names;
  }

  void processes(WorkerId w) {
    const WorkerReport& worker = answer_.report.workers[static_cast<std::size_t>(w)];
    const std::string name = fmt::format("{}device {} · {}", place_.prefix, worker.device, worker_name(answer_, w));
    event() << R"({"ph":"M","name":"process_name","pid":)" << pid(w) << R"(,"args":{"name":)" << json_string(name)
            << "}}";
    event() << R"({"ph":"M","name":"process_sort_index","pid":)" << pid(w) << R"(,"args":{"sort_index":)"
            << w * place_.answers + place_.number << "}}";
    thread(w, kCompute, "compute");
    for (StreamId s = 0; s < kStreams.size(); ++s)
      if (!answer_.times(w).communication[s].empty())
        thread(w, kFirstStream + static_cast<int>(s), std::string(kStreams[s].op));
    auto& [sends, recvs] = messages_[static_cast<std::size_t>(w)];
    int next = kFirstStream + 1;
    for (StreamId s = 0; s < kStreams.size(); ++s)
      if (!answer_.times(w).communication[s].empty()) next = std::max(next, kFirstStream + 1 + static_cast<int>(s));
    for (const auto& verb : assign_threads(sends, "send", next))
      thread(w, next++, verb);
    for (const auto& verb : assign_threads(recvs, "recv", next))
      thread(w, next++, verb);
  }

  void thread(WorkerId w, int tid, const std::string& name) {
    event() << R"({"ph":"M","name":"thread_name","pid":)" << pid(w) << R"(,"tid":)" << tid << R"(,"args":{"name":)"
            << json_string(name) << "}}";
    event() << R"({"ph":"M","name":"thread_sort_index","pid":)" << pid(w) << R"(,"tid":)" << tid
            << R"(,"args":{"sort_index":)" << tid << "}}";
  }

  // The part of a slice that all kinds share; its arguments and two brackets follow.
  void place(WorkerId w, int tid, Time start, Time end) {
    text_ << R"(","pid":)" << pid(w) << R"(,"tid":)" << tid << R"(,"ts":)" << start << R"(,"dur":)" << end - start
          << R"(,"args":{)";
  }

  void ops(WorkerId w) {
    const auto& times = answer_.timeline.workers[static_cast<std::size_t>(w)];
    const Lane& mine = lane(answer_, w);
    for (std::size_t i = 0; i < mine.compute.size(); ++i)
      op(mine.compute[i], times.compute[i], w, kCompute);
    for (StreamId s = 0; s < kStreams.size(); ++s)
      for (std::size_t i = 0; i < mine.communication[s].size(); ++i)
        op(mine.communication[s][i], times.communication[s][i], w, kFirstStream + static_cast<int>(s));
  }

  void op(const Op& op, const Span& span, WorkerId w, int tid) {
    const Look kind = look(op.kind);
    const Seating seating = answer_.plan.seating();
    const bool first = seating.stage_at(w % seating.positions()) == seating.stage_of(op.virtual_stage);
    const auto& [stage, layers] = chunks_[op.virtual_stage + (first ? 0 : answer_.plan.layers.size())];
    event() << R"({"ph":"X","cat":")" << words(kind) << R"(","name":")" << label(op);
    place(w, tid, span.start, span.end);
    const bool of_round = kind == Look::Update || kind == Look::AllReduce || op.bucket == kBehindUpdate;
    text_ << stage << (of_round ? R"("round":)" : R"("microbatch":)") << op.micro_batch;
    if (kind == Look::AllReduce) text_ << R"(,"bucket":)" << op.bucket;
    if (kind == Look::AllGather && !of_round)
      text_ << R"(,"pass":")" << (pass_of_gather(op) == Direction::Forward ? "forward" : "backward") << '"';
    text_ << layers;
  }

  // What the ops of a chunk have in common: the arguments before and after those of the op.
  void describe_chunks() {
    const Seating seating = answer_.plan.seating();
    const std::size_t count = answer_.plan.layers.size();
    for (std::size_t i = 0; i < (seating.held() > seating.virtual_stages ? 2 : 1) * count; ++i) {
      const auto v = static_cast<VirtualStageId>(i % count);
      std::string stage = fmt::format("\"stage\":{},", seating.stage_of(v, static_cast<int>(i / count)));
      if (answer_.plan.virtual_stages > 1) stage += fmt::format("\"virtual_stage\":{},", v);
      const LayerRange layers = answer_.plan.layers[v];
      chunks_.emplace_back(std::move(stage), fmt::format(",\"layers\":\"{}-{}\"}}}}", layers.begin, layers.end - 1));
    }
  }

  // Name of a message: what it carries, from chunk to chunk; the micro-batch follows.
  void name_messages() {
    for (const Edge edge : answer_.costs.edges)
      names_.push_back(
          {fmt::format("activation {}>{} m", edge.from, edge.to), fmt::format("gradient {}>{} m", edge.to, edge.from)});
  }
  std::string_view message_name(const Transfer& t) const {
    return names_[t.edge][t.direction == Direction::Forward ? 0 : 1];
  }

  void messages(WorkerId w) {
    const auto& ends = messages_[static_cast<std::size_t>(w)];
    for (const End end : {End::Send, End::Recv})
      for (const Slice& s : ends[static_cast<std::size_t>(end)]) {
        const Transfer& t = answer_.timeline.transfers[s.transfer];
        const bool sends = end == End::Send;
        event() << (sends ? R"({"ph":"X","cat":"send","name":")" : R"({"ph":"X","cat":"recv","name":")")
                << message_name(t) << t.micro_batch;
        place(w, s.thread, s.start, s.end);
        text_ << R"("bytes":)" << t.bytes.value << R"(,"microbatch":)" << t.micro_batch << R"(,"waited_us":)"
              << t.start - t.posted << "}}";
        arrow(sends ? 's' : 'f', s.transfer, w, s.thread, s.start);
      }
  }

  // Messages that take no time: arrows from the op that produced the tensor to the op that uses it.
  void arrows_from(WorkerId w) {
    for (const std::size_t index : instant_[static_cast<std::size_t>(w)]) {
      const Transfer& t = answer_.timeline.transfers[index];
      const auto [producer, consumer] = ends_of(t);
      if (producer == nullptr || consumer == nullptr) continue;
      arrow('s', index, w, kCompute, producer->end > producer->start ? producer->end - Time{1} : producer->end);
      arrow('f', index, t.to, kCompute, consumer->start);
    }
  }

  void arrow(char phase, std::size_t index, WorkerId w, int tid, Time at) {
    const Transfer& t = answer_.timeline.transfers[index];
    event() << (phase == 's' ? R"({"ph":"s","cat":"message","name":")"
                             : R"({"ph":"f","bp":"e","cat":"message","name":")")
            << message_name(t) << t.micro_batch << R"(","id":)" << document_.arrows + index << R"(,"pid":)" << pid(w)
            << R"(,"tid":)" << tid << R"(,"ts":)" << at << '}';
  }

  std::pair<const Span*, const Span*> ends_of(const Transfer& t) const {
    const Edge edge = answer_.costs.edges[t.edge];
    const bool forward = t.direction == Direction::Forward;
    return {find(t.from, forward ? edge.from : edge.to, t.micro_batch, forward),
            find(t.to, forward ? edge.to : edge.from, t.micro_batch, forward)};
  }

  // The pass of micro-batch m through chunk v on a worker, or nullptr.
  const Span* find(WorkerId w, VirtualStageId v, MicroBatchId m, bool forward) const {
    const auto& ops = passes_[static_cast<std::size_t>(w) % passes_.size()];
    const PassKey key{forward, v, m};
    const auto at = std::ranges::lower_bound(ops, std::pair(key, std::size_t{0}));
    if (at == ops.end() || at->first != key) return nullptr;
    return &answer_.timeline.workers[static_cast<std::size_t>(w)].compute[at->second];
  }

  // Forward passes and backward passes (B or BW) of every position, sorted.
  void index_passes() {
    for (const Lane& lane : answer_.schedule.positions) {
      auto& ops = passes_.emplace_back();
      for (std::size_t i = 0; i < lane.compute.size(); ++i) {
        const Op& op = lane.compute[i];
        const bool forward = op.kind == Kind::F;
        if (forward || rule(op.kind).backward)
          ops.push_back({{forward, op.virtual_stage, static_cast<MicroBatchId>(op.micro_batch)}, i});
      }
      std::ranges::sort(ops);
    }
  }

  void memory(WorkerId w, const std::vector<MemoryPoint>& points) {
    std::array<bool, kMemoryCategories.size()> used{};
    for (const MemoryPoint& point : points)
      for (std::size_t i = 0; i < used.size(); ++i)
        used[i] = used[i] || category(point.bytes, i).value != 0;
    for (const MemoryPoint& point : points) {
      event() << R"_({"ph":"C","name":"memory (GiB)","pid":)_" << pid(w) << R"(,"ts":)" << point.at << R"(,"args":{)";
      bool first = true;
      for (std::size_t i = 0; i < used.size(); ++i)
        if (used[i]) {
          text_ << (first ? "\"" : ",\"") << kMemoryCategories[i] << "\":" << category(point.bytes, i);
          first = false;
        }
      text_ << "}}";
    }
  }

  const Answer& answer_;
  Document& document_;
  TraceText& text_;
  TracePlace place_;
  std::vector<Slices> messages_;                                      // by worker
  std::vector<std::vector<std::size_t>> instant_;                     // by sending worker
  std::vector<std::vector<std::pair<PassKey, std::size_t>>> passes_;  // by position
  std::vector<std::array<std::string, 2>> names_;                     // of messages, by edge and direction
  std::vector<std::pair<std::string, std::string>> chunks_;           // arguments that ops of a chunk share
};

}  // namespace

std::string trace_json(const Answer& simulated) {
  const DrawnCopies whole(simulated, DrawnCopies::Of::All);
  const Answer& answer = whole.answer();
  Document document;
  Trace trace(answer, document);
  document.text.reserve(trace.estimated_size());
  begin(document, answer);
  trace.print();
  return end(document);
}

std::string trace_json(const Answer& simulated, const Answer& measured) {
  const DrawnCopies predicted(simulated, DrawnCopies::Of::All);
  Document document;
  begin(document, measured);
  Trace(predicted.answer(), document, {"predicted: ", 0, 2}).print();
  Trace(measured, document, {"measured: ", 1, 2}).print();
  return end(document);
}

}  // namespace pipewright::io
