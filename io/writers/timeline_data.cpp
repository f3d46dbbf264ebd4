// When every op ran, every message travelled and what every worker held, for those who draw and reckon themselves. Of
// copies of the pipeline that run alike the first one is written, as it is the one drawn.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/cost/memory_model.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/documents.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/json_fields.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

struct TimedOp {
  WorkerId worker = 0;
  StageId stage = 0;
  Op op;
  std::string_view stream;
  Span span;
};

struct HeldCurve {
  WorkerId worker = 0;
  StageId stage = 0;
  std::vector<MemoryPoint> points;
};

StageId stage_of_worker(const Answer& answer, WorkerId worker) {
  return answer.report.workers[at(worker)].stage;
}

// In order of workers, then of streams, then of time.
void each_op(const Answer& answer, const auto& take) {
  for (const WorkerId worker : distinct_workers(answer)) {
    const Lane& ops = lane(answer, worker);
    const LaneTimes& times = answer.timeline.workers[at(worker)];
    const auto stream = [&](const std::vector<Op>& list, const std::vector<Span>& spans, std::string_view name) {
      for (std::size_t i = 0; i < list.size(); ++i)
        take(TimedOp{worker, stage_of_worker(answer, worker), list[i], name, spans[i]});
    };
    stream(ops.compute, times.compute, "compute");
    for (StreamId s = 0; s < kStreams.size(); ++s)
      stream(ops.communication[s], times.communication[s], kStreams[s].name);
  }
}

void each_message(const Answer& answer, const auto& take) {
  const auto workers = static_cast<WorkerId>(distinct_workers(answer).size());
  for (const Transfer& message : answer.timeline.transfers)
    if (message.from < workers) take(message);
}

void each_curve(const Answer& answer, const auto& take) {
  auto all = series(answer.memory, answer.schedule, answer.costs, answer.timeline);
  for (const WorkerId worker : distinct_workers(answer))
    take(HeldCurve{worker, stage_of_worker(answer, worker), std::move(all[at(worker)])});
}

std::string_view direction(const Transfer& message) {
  return message.direction == Direction::Forward ? "forward" : "backward";
}

}  // namespace

std::string timeline_csv(const Answer& simulated) {
  const DrawnCopies whole(simulated, DrawnCopies::Of::Distinct);
  std::string text = "worker,stage,chunk,micro_batch,kind,stream,start_s,end_s\n";
  each_op(whole.answer(), [&](const TimedOp& o) {
    text += fmt::format("{},{},{},{},{},{},{},{}\n", o.worker, o.stage, o.op.virtual_stage, o.op.micro_batch,
                        name(o.op.kind), o.stream, exact_seconds(o.span.start), exact_seconds(o.span.end));
  });
  return text;
}

std::string messages_csv(const Answer& simulated) {
  const DrawnCopies whole(simulated, DrawnCopies::Of::Distinct);
  std::string text = "from_worker,to_worker,micro_batch,direction,bytes,posted_s,start_s,sent_s,arrived_s\n";
  each_message(whole.answer(), [&](const Transfer& m) {
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{}\n", m.from, m.to, m.micro_batch, direction(m), m.bytes.value,
                    exact_seconds(m.posted), exact_seconds(m.start), exact_seconds(m.sent), exact_seconds(m.arrived));
  });
  return text;
}

std::string memory_csv(const Answer& simulated) {
  const DrawnCopies whole(simulated, DrawnCopies::Of::Distinct);
  std::string text = "worker,stage,at_s";
  for (const std::string_view name : kMemoryCategories)
    text += fmt::format(",{}_bytes", name);
  text += ",total_bytes\n";
  each_curve(whole.answer(), [&](const HeldCurve& curve) {
    for (const MemoryPoint& point : curve.points) {
      text += fmt::format("{},{},{}", curve.worker, curve.stage, exact_seconds(point.at));
      for (std::size_t i = 0; i < kMemoryCategories.size(); ++i)
        text += fmt::format(",{}", category(point.bytes, i).value);
      text += fmt::format(",{}\n", point.bytes.total().value);
    }
  });
  return text;
}

void write_timeline(JsonFields& json, const Answer& simulated) {
  const DrawnCopies whole(simulated, DrawnCopies::Of::Distinct);
  std::vector<TimedOp> ops;
  std::vector<Transfer> messages;
  std::vector<HeldCurve> curves;
  each_op(whole.answer(), [&](const TimedOp& op) { ops.push_back(op); });
  each_message(whole.answer(), [&](const Transfer& message) { messages.push_back(message); });
  each_curve(whole.answer(), [&](HeldCurve curve) { curves.push_back(std::move(curve)); });
  json.object("timeline", [&] {
    json.list("ops", ops, [&](const TimedOp& o) {
      json.field("worker", o.worker).field("stage", o.stage).field("chunk", o.op.virtual_stage);
      json.field("micro_batch", o.op.micro_batch).field("kind", name(o.op.kind)).field("stream", o.stream);
      json.field("start_s", o.span.start).field("end_s", o.span.end);
    });
    json.list("messages", messages, [&](const Transfer& m) {
      json.field("from_worker", m.from).field("to_worker", m.to).field("micro_batch", m.micro_batch);
      json.word("direction", direction(m), {"forward", "backward"}).field("bytes", m.bytes);
      json.field("posted_s", m.posted).field("start_s", m.start).field("sent_s", m.sent).field("arrived_s", m.arrived);
    });
    json.list("memory", curves, [&](const HeldCurve& curve) {
      json.field("worker", curve.worker).field("stage", curve.stage);
      json.list("points", curve.points, [&](const MemoryPoint& point) {
        json.field("at_s", point.at);
        json.object("bytes", [&] {
          for (std::size_t i = 0; i < kMemoryCategories.size(); ++i)
            json.field(kMemoryCategories[i], category(point.bytes, i));
          json.field("total", point.bytes.total());
        });
      });
    });
  });
}

}  // namespace pipewright::io
