#include "io/import/import_source.hpp"

#include <array>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <sys/stat.h>

#include "io/read/read_file.hpp"
#include "io/store/sha256.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"

namespace pipewright {
namespace {

std::string date_of(std::time_t seconds) {
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(time));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

std::string hash_of(const std::string& path) {
  FilePieces file(path);
  Sha256 sum;
  std::array<char, 65536> block;
  while (const std::size_t count = file.read(block))
    sum.add({block.data(), count});
  return sum.digits();
}

}  // namespace

ImportSource source_of(const std::string& path, const std::string& format) {
  ImportSource source{.file = "standard input", .format = format, .tool = "pipewright " PIPEWRIGHT_VERSION};
  struct stat info {};
  if (path == "-") return source;
  source.file = one_line(std::filesystem::path(path).filename().string());
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return source;  // a pipe
  source.bytes = info.st_size;
  source.dated = date_of(info.st_mtime);
  if (source.bytes <= kLargestHashed) source.sha256 = hash_of(path);
  return source;
}

std::string as_comment(const ImportSource& source) {
  std::string first = fmt::format("{}: {}", source.format, source.file);
  if (source.bytes >= 0) first += fmt::format(", {} bytes, last changed {}", source.bytes, source.dated);
  std::string text = comment(first);
  if (!source.sha256.empty()) text += comment("sha256 " + source.sha256);
  text += comment(fmt::format("imported by {}: look it over before use", source.tool));
  if (!source.synthetic.empty()) text += comment("it says of itself: " + source.synthetic);
  for (const std::string& line : source.assumed)
    text += comment("assumed: " + line);
  for (const std::string& line : source.absent)
    text += comment("not in the file: " + line);
  return text;
}

}  // namespace pipewright
