#include "io/writers/page_text.hpp"

#include <doctest/doctest.h>

namespace pipewright::tests {
namespace {

TEST_CASE("Numbers that stand alone have separators of thousands, and nothing else has") {
  CHECK(with_separators("1850") == "1,850");
  CHECK(with_separators("55855 tokens/s") == "55,855 tokens/s");
  CHECK(with_separators("-1234567.25 (1000)") == "-1,234,567.25 (1,000)");
  CHECK(with_separators("999, 1000, 0.12345") == "999, 1,000, 0.12345");
  CHECK(with_separators("953675 steps of 8192", 5) == "953,675 steps of 8192");
  for (const char* const text : {"2026-11-23", "1000-2047", "v2048", "h100-80000", "x.yaml:1024:3", "12:34567", "4096k",
                                 "1,024", "00001234", "3/4096", "4096/3", "seed_12345", ""})
    CHECK(with_separators(text) == text);
}

TEST_CASE("Folders of this machine are left out, what lies in configs/ is still found") {
  CHECK(without_folders("# /home/me/pw/configs/devices/a100.yaml:4:9") == "# configs/devices/a100.yaml:4:9");
  CHECK(without_folders("pipewright simulate /home/me/x.yaml --set a=/data/p.yaml") ==
        "pipewright simulate x.yaml --set a=p.yaml");
  CHECK(without_folders("\"/home/me/my scenarios/x.yaml\"") == "\"x.yaml\"");
  CHECK(without_folders("/home/me/out/") == "out");
  CHECK(without_folders("profile:/home/me/p.yaml") == "profile:p.yaml");
  for (const char* const text :
       {"1/(M+K-1)", "samples/s", "scenarios/x.yaml", "https://a.b/c/d.html", "a / b", "/x.yaml"})
    CHECK(without_folders(text) == text);
}

}  // namespace
}  // namespace pipewright::tests
