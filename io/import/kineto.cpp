#include "io/import/kineto.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/import/byte_source.hpp"
#include "io/text/errors.hpp"
#include "io/text/letters.hpp"
#include "io/text/quantity.hpp"

namespace pipewright::io {
namespace {

constexpr std::int64_t kMostBetweenValues = std::int64_t{16} << 20;  // bytes between two values
constexpr int kDeepestTrace = 512;
constexpr std::size_t kMostActions = std::size_t{1} << 22;

// What a SAX parser reads from: an input iterator over a ByteSource.
class ByteIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  ByteIterator() = default;
  ByteIterator(ByteSource& source, const std::int64_t& last_value) : source_(&source), last_value_(&last_value) {
    ++*this;
  }
  char operator*() const { return static_cast<char>(byte_); }
  ByteIterator& operator++() {
    byte_ = source_->next();
    if (byte_ < 0) source_ = nullptr;
    if (source_ != nullptr && source_->bytes() - *last_value_ > kMostBetweenValues)
      throw InputError(source_->place(), "no value for 16 MiB; is this a trace?");
    return *this;
  }
  ByteIterator operator++(int) {
    ByteIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const ByteIterator& other) const { return source_ == other.source_; }

 private:
  ByteSource* source_ = nullptr;  // null: the end
  const std::int64_t* last_value_ = nullptr;
  int byte_ = -1;
};

// Digits from `at` on, at most nine; -1: none.
std::int64_t digits(std::string_view text, std::size_t& at) {
  const std::size_t begin = at;
  std::int64_t value = 0;
  for (; at < text.size() && is_digit(text[at]) && at - begin < 9; ++at)
    value = 10 * value + (text[at] - '0');
  return at == begin ? -1 : value;
}

class Events : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Events(ByteSource& source) : source_(source) {}

  ActionTrace read() {
    const bool whole = nlohmann::json::sax_parse(ByteIterator(source_, last_value_), ByteIterator(), this);
    PP_CHECK(whole);  // parse_error throws
    if (host_.empty() && device_.empty()) throw InputError(source_.name() + ": " + no_actions());
    trace_.file = source_.name();
    trace_.on_device = !device_.empty();
    trace_.actions = std::move(trace_.on_device ? device_ : host_);
    std::ranges::stable_sort(trace_.actions,
                             [](const TracedAction& a, const TracedAction& b) { return a.start < b.start; });
    if (trace_.on_device) join_streams(trace_.actions);
    return std::move(trace_);
  }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t number) override { return number_text(std::to_string(number)); }
  bool number_unsigned(number_unsigned_t number) override { return number_text(std::to_string(number)); }
  bool number_float(number_float_t, const string_t& text) override { return number_text(text); }
  bool string(string_t& text) override {
    if (in_event()) {
      if (key_ == "name") event_.name = text;
      if (key_ == "ph") event_.phase = text;
      if (key_ == "cat") event_.category = text;
    }
    return value();
  }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override {
    enter();
    if (depth_ == 2 && key_ == "distributedInfo") info_ = true;
    if (depth_ == event_depth_) event_ = {}, key_.clear();
    return value();
  }
  bool key(string_t& text) override {
    if (depth_ <= 2 || depth_ == event_depth_) key_ = text;
    return value();
  }
  bool end_object() override {
    if (depth_ == event_depth_) finish_event();
    if (depth_ == 2) info_ = false;
    --depth_;
    return value();
  }
  bool start_array(std::size_t) override {
    enter();
    // {"traceEvents": [ {event} ]}, or the bare list of events.
    if (event_depth_ == 0 && (depth_ == 1 || (depth_ == 2 && key_ == "traceEvents")))
      event_depth_ = depth_ + 1, lists_ = true;
    return value();
  }
  bool end_array() override {
    if (depth_ + 1 == event_depth_) event_depth_ = 0;
    --depth_;
    return value();
  }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception&) override {
    if (source_.bytes() == 0) throw InputError(source_.name() + ": is empty; name a trace of PyTorch's profiler");
    const std::size_t read = host_.size() + device_.size();
    if (source_.next() < 0)  // nothing is behind what cannot be read
      throw InputError(source_.place(),
                       fmt::format("the JSON ends early, behind {} action{} of a pipeline; the trace was "
                                   "cut off: write it again",
                                   read, read == 1 ? "" : "s"));
    throw InputError(source_.place(), fmt::format("no JSON at {}; name a trace that torch.profiler's "
                                                  "export_chrome_trace wrote (.json or .json.gz)",
                                                  in_quotes(token)));
  }

 private:
  struct Event {
    std::string name, phase, category;
    std::optional<Time> start, duration;
    std::int64_t process = -1;  // a name instead of a number: all such are one
  };

  bool in_event() const { return depth_ == event_depth_ && depth_ > 0; }
  bool value() {
    last_value_ = source_.bytes();
    return true;
  }
  void enter() {
    if (++depth_ > kDeepestTrace)
      throw InputError(source_.place(), fmt::format("values are more than {} deep; is this a trace?", kDeepestTrace));
  }

  bool number_text(const std::string& text) {
    if (info_ && depth_ == 2 && key_ == "rank") {
      const Parsed<std::int64_t> rank = parse_scaled(text, 0);
      if (rank.value && *rank.value >= 0) trace_.rank = *rank.value;
    }
    if (in_event() && key_ == "pid") event_.process = parse_scaled(text, 0).value.value_or(-1);
    if (in_event() && (key_ == "ts" || key_ == "dur")) {
      const Parsed<std::int64_t> time = parse_scaled(text, 3);  // microseconds
      if (time.value) (key_ == "ts" ? event_.start : event_.duration) = Time{*time.value};
    }
    return value();
  }

  void finish_event() {
    std::string_view name = event_.name;
    const bool marked = name.starts_with("PP:");
    if (marked) name.remove_prefix(3);
    std::optional<TracedAction> action = action_named(name);
    if (!action) {
      if (marked) ++trace_.other_actions;
      return;
    }
    if (event_.phase != "X") return;
    if (!event_.start || !event_.duration)
      throw InputError(source_.place(),
                       fmt::format("the event {} lacks ts or dur in microseconds", in_quotes(event_.name)));
    if (*event_.start > Time{kLatest} || *event_.duration > Time{kLatest})
      throw InputError(source_.place(), fmt::format("the event {} has times beyond any run's", in_quotes(event_.name)));
    action->start = *event_.start, action->duration = *event_.duration, action->process = event_.process;
    action->line = source_.place().line;
    std::vector<TracedAction>& list = event_.category == "user_annotation" ? host_ : device_;
    list.push_back(std::move(*action));
    if (list.size() > kMostActions)
      throw InputError(source_.place(), fmt::format("more than {} actions; profile fewer steps", kMostActions));
  }
  static constexpr std::int64_t kLatest = std::int64_t{1} << 61;

  std::string no_actions() const {
    if (!lists_) return "has no list of events (\"traceEvents\"); name a trace of PyTorch's profiler";
    return "has no action of a pipeline such as \"PP:0F3\"; " +
           (trace_.other_actions > 0
                ? fmt::format("of {} names with \"PP:\" none is a forward or backward", trace_.other_actions)
                : std::string("PyTorch names them since its schedules wrap every action in a record_function"));
  }

  ByteSource& source_;
  std::int64_t last_value_ = 0;
  int depth_ = 0, event_depth_ = 0;
  bool info_ = false, lists_ = false;
  std::string key_;  // of the value that comes, at the top and in events
  Event event_;
  std::vector<TracedAction> host_, device_;
  ActionTrace trace_;
};

}  // namespace

std::optional<TracedAction> action_named(std::string_view name) {
  TracedAction action;
  std::size_t at = 0;
  action.stage = digits(name, at);
  if (action.stage < 0 || at >= name.size()) return std::nullopt;
  action.kind = name[at++];
  if (std::string_view("FBIW").find(action.kind) == std::string_view::npos) return std::nullopt;
  action.micro_batch = digits(name, at);
  if (action.micro_batch < 0 || at != name.size()) return std::nullopt;
  return action;
}

void join_streams(std::vector<TracedAction>& actions) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, char>, std::size_t> last;
  std::vector<TracedAction> joined;
  for (const TracedAction& action : actions) {
    const auto [found, first] =
        last.try_emplace({action.process, action.stage, action.micro_batch, action.kind}, joined.size());
    if (!first) {
      TracedAction& before = joined[found->second];
      const Time end = before.start + before.duration;
      if (action.start < end) {
        before.duration = std::max(end, action.start + action.duration) - before.start;
        continue;
      }
      found->second = joined.size();
    }
    joined.push_back(action);
  }
  actions = std::move(joined);
}

ActionTrace read_action_trace(const std::string& path) {
  ByteSource source(path);
  return Events(source).read();
}

}  // namespace pipewright::io
