#include "io/import/training_log.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "io/import/byte_source.hpp"
#include "io/import/logged_memory.hpp"
#include "io/text/errors.hpp"
#include "io/text/letters.hpp"
#include "io/text/quantity.hpp"
#include "io/text/trimmed.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kMostSteps = std::size_t{1} << 22;

// ESC [ ... letter: colours.
std::string without_colours(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '[')
      for (++i; i + 1 < text.size() && (text[i + 1] < '@' || text[i + 1] > '~');)
        ++i;
    ++i;
  }
  return plain;
}

constexpr std::size_t kLongestKept = 300;  // of a line that is kept as text

class LogReader {
 public:
  explicit LogReader(const std::string& path) : source_(path) {}

  TrainingLog read() {
    for (std::string line; next_line(line); ++line_) {
      const std::string plain = line.find('\x1b') == std::string::npos ? line : without_colours(line);
      if (line_ == 1 && plain.starts_with('#') && lower(plain).find("synthetic") != std::string::npos)
        log_.synthetic = printable(trimmed(std::string_view(plain).substr(1, kLongestKept), kLineBlanks));
      if (const auto world = plain.find("world size: ");
          log_.layout.empty() && world != std::string::npos && plain.find("model-parallel size: ") != std::string::npos)
        log_.layout = printable(trimmed(std::string_view(plain).substr(world, kLongestKept), kLineBlanks));
      if (const auto at = plain.find("iteration "); at != std::string::npos && plain.find('|', at) != std::string::npos)
        megatron_step(std::string_view(plain).substr(at + 10));
      else if (plain.find(") memory (") != std::string::npos)
        megatron_memory(plain);
      else if (const auto step = plain.find("step:"); step != std::string::npos)
        torchtitan_step(plain, step);
    }
    if (source_.bytes() == 0) throw InputError(source_.name() + ": is empty; name the log of a run");
    if (steps_.empty())
      throw InputError(fmt::format(
          "{}: no line of a step in {} lines; expected are Megatron-LM's \"iteration 5/ 100 | elapsed time per "
          "iteration (ms): 5444.9 | ...\" or torchtitan's \"step: 5  loss: .. memory: .. tps: ..\"",
          source_.name(), line_ - 1));
    log_.file = source_.name();
    for (auto& [number, step] : steps_)
      log_.steps.push_back(std::move(step));
    return std::move(log_);
  }

 private:
  // Without its end; false: there is none.
  bool next_line(std::string& line) {
    line.clear();
    for (int byte = source_.next();; byte = source_.next()) {
      if (byte < 0) cut_off_ = true;
      if (byte < 0) return !line.empty();
      if (byte == '\n') return true;
      line += static_cast<char>(byte);
      if (line.size() > kLongestLogLine)
        throw InputError(here(), "a line of more than 1 MiB; is this the log of a run, or its trace (--trace)?");
    }
  }

  Place here() const { return {source_.name(), static_cast<int>(std::min<std::int64_t>(line_, 1 << 30)), 1}; }

  // A figure at the end of a file may be the half of one. Whole lines of Megatron-LM end with "|", torchtitan's with
  // "%".
  void check_end(std::string_view line) const {
    line = trimmed(line, kLineBlanks);
    if (cut_off_ && !line.ends_with('|') && !line.ends_with('%'))
      throw InputError(here(), "the last line is cut off; take it out, e.g. with head -n -1");
  }

  void is_of(const char* format) {
    if (log_.format.empty()) log_.format = format;
    if (log_.format != format)
      throw InputError(here(), fmt::format("a step of {} behind those of {}; give one run's log", format, log_.format));
  }

  double number(std::string_view what, std::string_view text) const {
    std::string digits(trimmed(text, kLineBlanks));
    std::erase(digits, ',');  // 5,856
    const std::string word = lower(digits);
    if (word == "nan" || word == "inf" || word == "-inf") return std::nan("");
    const bool negative = !digits.empty() && digits.front() == '-';
    const Parsed<double> value = parse_number(negative ? std::string_view(digits).substr(1) : digits);
    if (!value.value)
      throw InputError(here(), fmt::format("{}: {} {}; is the line cut off?", what,
                                           in_quotes(trimmed(text, kLineBlanks)), value.why));
    return negative ? -*value.value : *value.value;
  }

  std::int64_t whole(std::string_view what, std::string_view text) const {
    const double value = number(what, text);
    if (!(value >= 0 && value <= 9e15) || value != std::floor(value))
      throw InputError(here(),
                       fmt::format("{}: {} is not a whole number; is the line cut off?", what, in_quotes(text)));
    return static_cast<std::int64_t>(value);
  }

  Time milliseconds(std::string_view what, std::string_view text) const {
    text = trimmed(text.substr(0, text.find('/')), kLineBlanks);  // ROCm's fork: this one / the mean
    const Parsed<std::int64_t> time = parse_scaled(text, 6);
    if (!time.value || *time.value <= 0)
      throw InputError(here(),
                       fmt::format("{}: {} is not a time above 0; is the line cut off?", what, in_quotes(text)));
    return {*time.value};
  }

  LoggedStep& step_of(std::int64_t number) {
    const auto [at, absent] = steps_.try_emplace(number);
    if (absent) at->second.number = number, at->second.place = here();
    if (steps_.size() > kMostSteps)
      throw InputError(here(), fmt::format("more than {} steps; keep fewer of them", kMostSteps));
    return at->second;
  }

  template <class T>
  static void keep_most(std::optional<T>& most, T value) {
    if (!most || *most < value) most = value;
  }

  // "  43/     100 | consumed samples: 5504 | ..."
  void megatron_step(std::string_view rest) {
    constexpr std::string_view kTime = "elapsed time per iteration (ms)";
    const std::string_view head = rest.substr(0, rest.find('|'));
    const auto slash = head.find('/');
    if (slash == std::string_view::npos || rest.find(kTime) == std::string_view::npos) return;
    is_of("Megatron-LM");
    check_end(rest);
    LoggedStep& step = step_of(whole("iteration", head.substr(0, slash)));
    for (std::size_t begin = head.size(); begin < rest.size();) {
      const std::size_t end = std::min(rest.find('|', begin + 1), rest.size());
      const std::string_view field = rest.substr(begin + 1, end - begin - 1);
      begin = end;
      const auto colon = field.rfind(':');
      if (colon == std::string_view::npos) continue;
      const std::string_view key = trimmed(field.substr(0, colon), kLineBlanks),
                             value = trimmed(field.substr(colon + 1), kLineBlanks);
      if (key == kTime) {
        keep_most(step.time, milliseconds(key, value));
      } else if (key == "throughput per GPU (TFLOP/s/GPU)") {
        step.flop_rate_device = 1e12 * number(key, value.substr(0, value.find('/')));
      } else if (key == "global batch size") {
        step.global_batch_size = whole(key, value);
      } else if (key == "lm loss") {
        keep_most(step.loss, number(key, value));
      }
    }
    if (!step.time) throw InputError(here(), fmt::format("{} has no figure; is the line cut off?", kTime));
  }

  // "[Rank 0] (after 2 iterations) memory (MB) | ... | max allocated: 5678.9 | ..."
  void megatron_memory(std::string_view line) {
    if (cut_off_) return;
    const LoggedMemory memory = memory_of_line(line);
    if (memory.allocated) keep_most(log_.max_allocated, *memory.allocated);
    if (memory.reserved) keep_most(log_.max_reserved, *memory.reserved);
  }

  // "step: 12  loss:  8.1661  grad_norm:  3.6855  memory:  2.47GiB(3.12%)  tps: 3,502  tflops: 1.90  mfu: 0.19%"
  void torchtitan_step(std::string_view line, std::size_t at) {
    if (line.find("tps:") == std::string_view::npos && line.find("memory:") == std::string_view::npos) return;
    if (at >= 9 && line.substr(at - 9, 9) == "validate ") return;  // a step of the validation loop
    const auto value = [&](std::string_view key) -> std::optional<std::string_view> {
      const auto found = line.find(key, at);
      if (found == std::string_view::npos) return std::nullopt;
      std::string_view rest = line.substr(found + key.size());
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
      return rest.substr(0, rest.find_first_of(" \t\r"));
    };
    is_of("torchtitan");
    check_end(line);
    LoggedStep& step = step_of(whole("step", *value("step:")));
    if (const auto loss = value("loss:")) keep_most(step.loss, number("loss", *loss));
    if (const auto memory = value("memory:")) {
      const auto unit = memory->find("GiB");
      const double gib = number("memory", memory->substr(0, unit));
      if (unit != std::string_view::npos && gib > 0 && gib < 1e6)
        keep_most(log_.max_reserved, Bytes{std::llround(gib * 1024 * kMebi)});
    }
    const auto tps = value("tps:");
    if (!tps || tps->empty()) throw InputError(here(), "tps has no figure; is the line cut off?");
    const double rate = number("tps", *tps);
    if (!(rate >= 0)) throw InputError(here(), fmt::format("tps: {} is not a rate", in_quotes(*tps)));
    if (!step.tokens_per_s_device || rate < *step.tokens_per_s_device) step.tokens_per_s_device = rate;
    if (const auto flops = value("tflops:"); flops && !flops->empty())
      step.flop_rate_device = 1e12 * number("tflops", *flops);
  }

  ByteSource source_;
  std::int64_t line_ = 1;
  bool cut_off_ = false;  // the line that was read last has no end
  std::map<std::int64_t, LoggedStep> steps_;
  TrainingLog log_;
};

}  // namespace

LoggedLayout logged_layout(std::string_view line) {
  // " tensor-model-parallel size: " is none of "encoder-tensor-model-parallel size: "
  const auto size = [&](std::string_view key) -> std::optional<std::int64_t> {
    for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
      if (at > 0 && line[at - 1] != ' ' && line[at - 1] != ',') continue;
      const std::string_view rest = line.substr(at + key.size());
      return parse_count(rest.substr(0, rest.find_first_not_of("0123456789"))).value;
    }
    return std::nullopt;
  };
  return {size("world size: "), size("data-parallel size: "), size("tensor-model-parallel size: "),
          size("pipeline-model-parallel size: ")};
}

TrainingLog read_training_log(const std::string& path) {
  return LogReader(path).read();
}

}  // namespace pipewright::io
