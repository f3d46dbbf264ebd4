#include <cstddef>
#include <memory>
#include <optional>
#include <variant>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/check.hpp"
#include "io/writers/figure.hpp"
#include "io/writers/writers.hpp"
#include "python/columns.hpp"
#include "python/question.hpp"
#include "python/simulated.hpp"

namespace pipewright::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

constexpr std::size_t kWords = sizeof(MemoryPoint) / sizeof(std::int64_t);
constexpr std::size_t kCategories = sizeof(MemoryBytes) / sizeof(std::int64_t);
static_assert(sizeof(MemoryPoint) % sizeof(std::int64_t) == 0 && sizeof(Time) == sizeof(std::int64_t));
static_assert(kCategories == 10, "names in pipewright/_results.py");

// Memory over time of every worker.
struct MemoryCurves {
  std::vector<std::vector<MemoryPoint>> workers;
};

template <class T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> column(const std::vector<T>& values, nb::handle owner) {
  return nb::ndarray<nb::numpy, const T, nb::ndim<1>>(values.data(), {values.size()}, owner);
}

template <auto member>
auto view_of(const OpColumns& columns) {
  return column(columns.*member, nb::find(columns));
}

struct TransferColumns {
  std::vector<std::int32_t> from, to, micro_batch;
  std::vector<std::uint8_t> direction;
  std::vector<std::int64_t> bytes, posted, start, sent, arrived;
};

template <auto member>
auto transfers_of(const TransferColumns& columns) {
  return column(columns.*member, nb::find(columns));
}

TransferColumns transfer_columns(const std::vector<Transfer>& transfers) {
  TransferColumns columns;
  for (const Transfer& each : transfers) {
    columns.from.push_back(each.from), columns.to.push_back(each.to);
    columns.micro_batch.push_back(each.micro_batch);
    columns.direction.push_back(static_cast<std::uint8_t>(each.direction));
    columns.bytes.push_back(each.bytes.value);
    columns.posted.push_back(each.posted.value), columns.start.push_back(each.start.value);
    columns.sent.push_back(each.sent.value), columns.arrived.push_back(each.arrived.value);
  }
  return columns;
}

const std::vector<MemoryPoint>& worker_of(const MemoryCurves& curves, std::size_t worker) {
  if (worker >= curves.workers.size()) throw nb::index_error("no such worker");
  return curves.workers[worker];
}

std::variant<Answer, Infeasible> answered_as_asked(const Asked& asked, const AnswerOptions& options) {
  const Scenario scenario = read_scenario(asked.path, asked.how);
  try {
    return answer(scenario, options);
  } catch (const OverflowError& error) {
    throw InputError(Place{scenario.file, 0, 0}, error.what());
  }
}

nb::object simulate_asked(const Asked& asked, const std::string& engine, bool ignore_memory) {
  const AnswerOptions options{engine == "static"  ? Engine::StaticOrder
                              : engine == "event" ? Engine::EventQueue
                                                  : Engine::Auto,
                              ignore_memory};
  auto result = without_lock([&] { return answered_as_asked(asked, options); });
  if (auto* const none = std::get_if<Infeasible>(&result)) return nb::cast(std::move(*none));
  return nb::cast(Simulated{std::make_shared<const Answer>(std::move(std::get<Answer>(result)))});
}

nb::bytes written(const Simulated& simulated, const std::string& ending, const std::string& command) {
  for (const Writer& writer : writers())
    if (writer.ending.substr(1) == ending) {
      const std::string bytes = without_lock([&] { return writer.write(*simulated.answer, command); });
      return nb::bytes(bytes.data(), bytes.size());
    }
  throw nb::value_error("no such format");
}

std::string drawn(const std::vector<Simulated>& results, const std::vector<std::string>& names,
                  const std::string& width, const std::string& font, const std::string& font_size, std::size_t palette,
                  std::size_t memory, bool title, bool legend) {
  FigureStyle style{.palette = &palettes()[palette], .title = title, .legend = legend};
  const auto length = [](const std::string& text, const char* name, double otherwise) {
    if (text.empty()) return otherwise;
    const auto pixels = length_in_pixels(text);
    if (!pixels || *pixels < 1 || *pixels > 1e4)
      throw InputError(Place{}, name, "is not a length in mm, cm, in, pt or px; write e.g. \"84mm\"");
    return *pixels;
  };
  style.width = length(width, "width", style.width), style.font_size = length(font_size, "font_size", style.font_size);
  style.memory = static_cast<FigureMemory>(memory);
  if (!font.empty()) {
    const auto fonts = css_fonts(font);
    if (!fonts) throw InputError(Place{}, "font", "is not a list of fonts; write e.g. \"Helvetica, sans-serif\"");
    style.fonts = *fonts;
  }
  return without_lock([&] {
    std::vector<FigurePanel> panels;
    for (std::size_t i = 0; i < results.size(); ++i)
      panels.push_back({names[i], results[i].answer.get()});
    return svg_figure(panels, style);
  });
}

}  // namespace

OpColumns op_columns(const Schedule& schedule, const std::vector<LaneTimes>& workers) {
  OpColumns columns;
  const Seating seating = schedule.seating();
  for (WorkerId w = 0; w < std::ssize(workers); ++w) {
    const Lane& lane = schedule.lane_of(w);
    const StageId stage = seating.stage_at(schedule.position_of(w));
    const auto add = [&](const std::vector<Op>& ops, const std::vector<Span>& spans, std::size_t stream) {
      for (std::size_t i = 0; i < spans.size(); ++i) {
        columns.worker.push_back(w), columns.stage.push_back(stage);
        columns.chunk.push_back(ops[i].virtual_stage);
        columns.micro_batch.push_back(static_cast<std::int32_t>(ops[i].micro_batch));
        columns.kind.push_back(static_cast<std::uint8_t>(ops[i].kind));
        columns.stream.push_back(static_cast<std::uint8_t>(stream));
        columns.start.push_back(spans[i].start.value), columns.end.push_back(spans[i].end.value);
      }
    };
    add(lane.compute, workers[w].compute, 0);
    for (StreamId stream = 0; stream < kStreams.size(); ++stream)
      add(lane.communication[stream], workers[w].communication[stream], stream + 1);
  }
  return columns;
}

void add_simulation(nb::module_& module) {
  nb::list kinds, streams;
  for (const KindRule& kind : kKindRules)
    kinds.append(nb::str(kind.name.data(), kind.name.size()));
  for (const StreamRule& stream : kStreams)
    streams.append(nb::str(stream.name.data(), stream.name.size()));
  module.attr("kinds") = nb::tuple(kinds), module.attr("streams") = nb::tuple(streams);

  nb::class_<OpColumns>(module, "OpColumns")
      .def_prop_ro("worker", view_of<&OpColumns::worker>)
      .def_prop_ro("stage", view_of<&OpColumns::stage>)
      .def_prop_ro("chunk", view_of<&OpColumns::chunk>)
      .def_prop_ro("micro_batch", view_of<&OpColumns::micro_batch>)
      .def_prop_ro("kind", view_of<&OpColumns::kind>)
      .def_prop_ro("stream", view_of<&OpColumns::stream>)
      .def_prop_ro("start_ns", view_of<&OpColumns::start>)
      .def_prop_ro("end_ns", view_of<&OpColumns::end>);
  nb::class_<TransferColumns>(module, "TransferColumns")
      .def_prop_ro("from_worker", transfers_of<&TransferColumns::from>)
      .def_prop_ro("to_worker", transfers_of<&TransferColumns::to>)
      .def_prop_ro("micro_batch", transfers_of<&TransferColumns::micro_batch>)
      .def_prop_ro("direction", transfers_of<&TransferColumns::direction>)
      .def_prop_ro("bytes", transfers_of<&TransferColumns::bytes>)
      .def_prop_ro("posted_ns", transfers_of<&TransferColumns::posted>)
      .def_prop_ro("start_ns", transfers_of<&TransferColumns::start>)
      .def_prop_ro("sent_ns", transfers_of<&TransferColumns::sent>)
      .def_prop_ro("arrived_ns", transfers_of<&TransferColumns::arrived>);
  nb::class_<MemoryCurves>(module, "MemoryCurves")
      .def("__len__", [](const MemoryCurves& curves) { return curves.workers.size(); })
      .def("at_ns",
           [](const MemoryCurves& curves, std::size_t worker) {
             const auto& points = worker_of(curves, worker);
             return nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>(
                 points.empty() ? nullptr : &points.front().at.value, {points.size()}, nb::find(curves), {kWords});
           })
      .def("bytes", [](const MemoryCurves& curves, std::size_t worker) {
        const auto& points = worker_of(curves, worker);
        return nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<2>>(
            points.empty() ? nullptr : &points.front().bytes.weights.value, {points.size(), kCategories},
            nb::find(curves), {kWords, 1});
      });
  nb::class_<Infeasible>(module, "Infeasible")
      .def("json", [](const Infeasible& none) { return json_infeasible(none); })
      .def("text", [](const Infeasible& none) { return infeasible_text(none); });
  nb::class_<Simulated>(module, "Simulated")
      .def("json", [](const Simulated& s) { return without_lock([&] { return json_report(*s.answer); }); })
      .def("text", [](const Simulated& s,
                      int width) { return without_lock([&] { return terminal_report(*s.answer, {.width = width}); }); })
      .def("write", written)
      .def("ops",
           [](const Simulated& s, bool all) {
             return without_lock([&] {
               if (!all) return op_columns(s.answer->schedule, s.answer->timeline.workers);
               const Timeline timeline = unfolded(s.answer->timeline, s.answer->plan, s.answer->costs.fold.get());
               return op_columns(s.answer->schedule, timeline.workers);
             });
           })
      .def("transfers",
           [](const Simulated& s) {
             return without_lock([&] { return transfer_columns(s.answer->timeline.transfers); });
           })
      .def("memory", [](const Simulated& s) {
        return without_lock([&] {
          const Answer& a = *s.answer;
          return MemoryCurves{series(a.memory, a.schedule, a.costs, a.timeline)};
        });
      });
  nb::list names;
  for (const Palette& palette : palettes())
    names.append(nb::str(palette.name.data(), palette.name.size()));
  module.attr("palettes") = nb::tuple(names);
  module.def("draw", drawn, "results"_a, "names"_a, "width"_a, "font"_a, "font_size"_a, "palette"_a, "memory"_a,
             "title"_a, "legend"_a);
  module.def("simulate", simulate_asked, "asked"_a, "engine"_a, "ignore_memory"_a);
}

}  // namespace pipewright::python
