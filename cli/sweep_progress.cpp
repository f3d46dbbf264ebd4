#include "cli/sweep_progress.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/terminal.hpp"
#include "io/format_quantity.hpp"

namespace pipewright {
namespace {

// Where standard error is no terminal (a job's log): a line per tenth, the first one after so long.
constexpr std::chrono::seconds kBetweenLines{10};

std::string clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

SweepProgress::SweepProgress(std::int64_t points)
    : begin_(std::chrono::steady_clock::now()), points_(points), terminal_(isatty(STDERR_FILENO) == 1) {}

void SweepProgress::found(const std::vector<SweepFinding>& findings) {
  done_ += static_cast<std::int64_t>(findings.size());
  for (const SweepFinding& finding : findings)
    if (finding.row && finding.row->outcome == SweepRow::Outcome::Fits)
      best_ = std::max(best_, finding.row->samples_per_s);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
  std::string more;
  if (done_ > 0 && spent.count() > 0) {
    const double rate = static_cast<double>(done_) / spent.count();
    more = fmt::format("{}/s, {} left", significant(rate), clock(static_cast<double>(points_ - done_) / rate));
  }
  if (best_ > 0) more += fmt::format("{}best {} samples/s", more.empty() ? "" : ", ", significant(best_, 4));
  if (terminal_) return line_.show("points", done_, points_, more);
  const std::int64_t tenths = points_ > 0 ? 10 * done_ / points_ : 10;
  if (tenths == tenths_ || spent - logged_ < kBetweenLines || done_ == points_) return;
  tenths_ = tenths, logged_ = spent;
  note(fmt::format("points {}/{}  {}", done_, points_, more));
}

}  // namespace pipewright
