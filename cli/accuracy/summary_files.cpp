// The summary as JSON, and as a drawing: predicted over measured steps, both logarithmic.
#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/accuracy/summary.hpp"
#include "cli/shapes.hpp"
#include "io/format_quantity.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright {
namespace {

std::string_view state_name(TargetState state) {
  switch (state) {
    case TargetState::NotMeasured: return "not measured";
    case TargetState::NotApplicable: return "not applicable";
    case TargetState::Met: return "met";
    case TargetState::Missed: return "missed";
  }
  return "";
}

void write_attempt(JsonText& json, const StudyRecord& record) {
  json.open('{').field("part", record.part).field("name", record.name).field("attempt", record.attempt);
  json.field("status", record.status).field("reason", record.reason);
  for (const auto& [name, value] : record.words)
    json.field(name, value);
  for (const auto& [name, value] : record.figures)
    json.field(name, value);
  for (const auto& [name, values] : record.lists)
    json.field(name, values);
  json.close();
}

constexpr double kSide = 420, kLeft = 88, kTop = 64;
constexpr std::string_view kStyle = R"svg(<style>
.m{fill:#3b78c9;fill-opacity:.75}.w{fill:none;stroke:#59636e;stroke-width:1.4}
@media(prefers-color-scheme:dark){.m{fill:#6aa5f0}.w{stroke:#9ca6b1}}
</style>
)svg";

class Scatter {
 public:
  explicit Scatter(const StudySummary& summary) : s_(summary) {
    for (const StudyRecord& r : s_.records)
      if ((r.part == 3 || r.part == 4) && r.figure("measured_s") > 0 && r.figure("predicted_s") > 0)
        shown_.push_back(&r);
    double least = 1e300, most = 0;
    for (const StudyRecord* const r : shown_)
      for (const char* const key : {"measured_s", "predicted_s"})
        least = std::min(least, r->figure(key)), most = std::max(most, r->figure(key));
    if (shown_.empty()) return;
    first_ = std::floor(std::log10(least)), last_ = std::max(first_ + 1, std::ceil(std::log10(most)));
  }

  std::string draw() {
    canvas_.raw(kStyle);
    const std::string name = s_.dry_run ? "A dry run on a CPU: no figure is one of a GPU" : "Steps on a GPU";
    canvas_.text(12, 24, name, "title", 15);
    if (shown_.empty()) {
      canvas_.text(12, 48, "not measured", "quiet", 12);
      return canvas_.document(kSide, 72, name);
    }
    canvas_.text(12, 46, "predicted over measured step, one dot per attempt; hollow: withheld; line: as predicted",
                 "quiet", 12);
    for (double power = first_; power <= last_; ++power)
      grid(power);
    canvas_.line(x(std::pow(10, first_)), y(std::pow(10, first_)), x(std::pow(10, last_)), y(std::pow(10, last_)),
                 "tick");
    for (const StudyRecord* const r : shown_)
      dot(*r);
    return canvas_.document(kLeft + kSide + 40, kTop + kSide + 44, name);
  }

 private:
  double share(double seconds) const { return (std::log10(seconds) - first_) / (last_ - first_); }
  double x(double seconds) const { return kLeft + kSide * share(seconds); }
  double y(double seconds) const { return kTop + kSide * (1 - share(seconds)); }

  void grid(double power) {
    const double value = std::pow(10, power);
    const std::string label = brief_time({std::llround(value * 1e9)});
    canvas_.line(kLeft, y(value), kLeft + kSide, y(value), "grid");
    canvas_.line(x(value), kTop, x(value), kTop + kSide, "grid");
    canvas_.text(kLeft - 8, y(value) + 4, label, "end quiet", 11);
    canvas_.text(x(value), kTop + kSide + 18, label, "mid quiet", 11);
  }
  void dot(const StudyRecord& r) {
    constexpr double kRadius = 4;
    const std::string path = fmt::format(
        "M{} {}a{} {} 0 1 0 {} 0a{} {} 0 1 0 -{} 0", coordinate(x(r.figure("measured_s")) - kRadius),
        coordinate(y(r.figure("predicted_s"))), kRadius, kRadius, 2 * kRadius, kRadius, kRadius, 2 * kRadius);
    canvas_.path(path, r.done() ? "m" : "w", fmt::format("{}, attempt {}: {}", r.name, r.attempt, r.status));
  }

  const StudySummary& s_;
  std::vector<const StudyRecord*> shown_;
  double first_ = 0, last_ = 1;  // powers of ten
  Canvas canvas_;
};

}  // namespace

std::string summary_json(const StudySummary& summary, const std::vector<std::string>& written) {
  JsonText json;
  json.open('{').field("schema", "pipewright.study-summary/1").field("dry_run", summary.dry_run);
  json.key("targets").open('[');
  for (const StudyTarget& target : summary.targets)
    json.open('{')
        .field("part", target.part)
        .field("quantity", target.quantity)
        .field("target", target.target)
        .field("result", target.result)
        .field("state", state_name(target.state))
        .field("stretch", target.stretch)
        .close();
  json.close().key("steps").open('[');
  for (const StepErrors& errors : summary.steps)
    json.open('{')
        .field("stages", errors.stages)
        .field("judged", errors.judged)
        .field("with_long_ops", errors.long_ops)
        .field("mean_error", errors.mean)
        .field("largest_error", errors.largest)
        .field("largest_error_with_short_ops", errors.largest_with_short)
        .close();
  json.close().key("ranking").open('{').field("pairs", summary.ranking.pairs);
  json.field("told_apart", summary.ranking.told_apart).field("right", summary.ranking.right).close();
  json.key("speed_ups").open('[');
  for (const SpeedUp& one : summary.speed_ups)
    json.open('{')
        .field("stages", one.stages)
        .field("micro_batches", one.micro_batches)
        .field("predicted", one.predicted)
        .field("measured", one.measured)
        .close();
  json.close().key("attempts").open('[');
  for (const StudyRecord& record : summary.records)
    write_attempt(json, record);
  json.close();
  if (!written.empty()) json.field("written", written);
  json.close();
  return std::move(json).text();
}

std::string summary_svg(const StudySummary& summary) {
  return Scatter(summary).draw();
}

// Attempts have, beside what all have, whatever their part measured. `dry_run` is first in a dry run's files.
JsonShape study_summary_shape() {
  using namespace shape;
  const JsonShape target = object({{"part", whole()},
                                   {"quantity", text()},
                                   {"target", text()},
                                   {"result", text()},
                                   {"state", one_of({"not measured", "not applicable", "met", "missed"})},
                                   {"stretch", flag()}});
  const JsonShape errors = object({{"stages", whole()},
                                   {"judged", whole()},
                                   {"with_long_ops", whole()},
                                   {"mean_error", number()},
                                   {"largest_error", number()},
                                   {"largest_error_with_short_ops", number()}});
  const JsonShape speed_up = object(
      {{"stages", whole()}, {"micro_batches", whole()}, {"predicted", maybe(number())}, {"measured", maybe(number())}});
  const JsonShape attempt = map(either({text(), maybe(number()), list(maybe(number()))}));
  return bare_document("pipewright.study-summary/1",
                       {{"dry_run", flag()},
                        {"targets", list(target)},
                        {"steps", list(errors)},
                        {"ranking", object({{"pairs", whole()}, {"told_apart", whole()}, {"right", whole()}})},
                        {"speed_ups", list(speed_up)},
                        {"attempts", list(attempt)},
                        {"written?", list(text())}});
}

}  // namespace pipewright
