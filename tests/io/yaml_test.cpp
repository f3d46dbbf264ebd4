#include "io/yaml/yaml.hpp"

#include <doctest/doctest.h>

#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

std::string yaml_refusal(const std::string& text) {
  return message_of([&] { parse_yaml(text, "x.yaml"); });
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i)
    all += text;
  return all;
}

}  // namespace

TEST_CASE("Every value carries its 1-based line and column") {
  const Yaml root = parse_yaml("a: 1\nb:\n  - x\n  - {c: 80 GiB}\n", "dir/x.yaml");
  CHECK(Place(root.find("a")->place) == Place{"dir/x.yaml", 1, 4});
  const Yaml& item = root.find("b")->list[1];
  CHECK(Place(item.place) == Place{"dir/x.yaml", 4, 5});
  CHECK(Place(item.find("c")->place) == Place{"dir/x.yaml", 4, 9});
  CHECK(item.find("c")->scalar == "80 GiB");
  CHECK(root.place.source->folder == "dir/");
}

TEST_CASE("Windows line ends, a byte order mark and UTF-8 are text like any other") {
  const Scratch scratch;
  const Yaml root = read_yaml(scratch.write("x.yaml",
                                            "\xef\xbb\xbf"
                                            "a: 1\r\nb: \u00b5s \u4e16\r\n"));
  CHECK(root.find("a")->scalar == "1");
  CHECK(root.find("b")->scalar == "\u00b5s \u4e16");
  CHECK(Place(root.find("b")->place) == Place{scratch.path("x.yaml"), 2, 4});
}

TEST_CASE("Duplicate keys are refused, all of them at once") {
  CHECK(yaml_refusal("a: 1\nb: {c: 1, c: 2}\na: 2\n") ==
        "x.yaml:2:11: duplicate key \"c\"; it stands already in line 2, keep one of them\n"
        "x.yaml:3:1: duplicate key \"a\"; it stands already in line 1, keep one of them");
}

TEST_CASE("Anchors, aliases, merge keys, tags and several documents are refused") {
  CHECK(yaml_refusal("a: &x 1\n") == "x.yaml:1:4: an anchor (&name) is not allowed here; write the value out");
  CHECK(yaml_refusal("a: &x 1\nb: *x\n") ==
        "x.yaml:1:4: an anchor (&name) is not allowed here; write the value out\n"
        "x.yaml:2:4: an alias (*name) is not allowed here; write the value out");
  CHECK(yaml_refusal("a: {<<: {b: 1}}\n") == "x.yaml:1:5: a merge key (<<) is not allowed here; write the values out");
  CHECK(yaml_refusal("a: !!int 1\n") ==
        "x.yaml:1:4: the tag \"tag:yaml.org,2002:int\" is not allowed here; write the plain value");
  CHECK(yaml_refusal("a: 1\n---\nb: 1\n").find("a second YAML document starts here; one document per file") !=
        std::string::npos);
  CHECK(yaml_refusal("? [a, b]\n: 1\n").find("a key must be plain text; quote it, or close the bracket before") !=
        std::string::npos);
}

TEST_CASE("An alias bomb is refused where it is written, before anything is expanded") {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 10; ++i)
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" +
            repeated("*a" + std::to_string(i - 1) + ",", 9) + "]\n";
  CHECK(yaml_refusal(bomb).starts_with("x.yaml:1:5: an anchor (&name) is not allowed here; write the value out\n"));
}

TEST_CASE("64 levels of nesting are read, 65 are refused") {
  CHECK(yaml_refusal(repeated("[", 64) + repeated("]", 64)).empty());
  CHECK(yaml_refusal(repeated("[", 65) + repeated("]", 65)) == "x.yaml:1:65: nested deeper than 64 levels; flatten it");
  CHECK(yaml_refusal(repeated("{a: ", 65) + "1" + repeated("}", 65)) ==
        "x.yaml:1:257: nested deeper than 64 levels; flatten it");
  CHECK(yaml_refusal(repeated("[\n", 1'000'000)) == "x.yaml:65:1: nested deeper than 64 levels; flatten it");
  CHECK(yaml_refusal(repeated("- ", 1'000'000)).find("nested deeper than 64 levels; flatten it") != std::string::npos);
}

TEST_CASE("A list of a million entries is read, two million values are the limit") {
  CHECK(parse_yaml("a: [" + repeated("1,", 1'000'000) + "]", "x.yaml").find("a")->list.size() == 1'000'000);
  CHECK(yaml_refusal("a: [" + repeated("1,", 2'100'000) + "]").find("more than 2000000 values in one file") !=
        std::string::npos);
}

TEST_CASE("What is not text is refused before it is parsed") {
  CHECK(yaml_refusal(std::string("SQLite format 3\0\x10", 17)) ==
        "x.yaml: is an SQLite database, not YAML; rows of a sweep are shown by `pipewright sweep FILE`");
  CHECK(yaml_refusal(std::string("a: 1\nb: \0x", 9)) ==
        "x.yaml:2:4: byte 0x00 is not text; the file must be UTF-8 text");
  CHECK(yaml_refusal("\x7f"
                     "ELF\x02") == "x.yaml:1:1: byte 0x7f is not text; the file must be UTF-8 text");
  CHECK(yaml_refusal("a: \xff\xfe") == "x.yaml:1:4: byte 0xff is not text; the file must be UTF-8 text");
  CHECK(yaml_refusal("a: \xc0\x80") == "x.yaml:1:4: byte 0xc0 is not text; the file must be UTF-8 text");
  CHECK(yaml_refusal("") == "x.yaml: is empty; see scenarios/quickstart.yaml");
  CHECK(yaml_refusal("# nothing\n") == "x.yaml: is empty; see scenarios/quickstart.yaml");
}

TEST_CASE("A line indented by a tab is named") {
  CHECK(message_of([] { parse_yaml("a: 1\nb:\n\tc: 1\n", "x.yaml"); }) ==
        "x.yaml:3:1: this line is indented by a tab; YAML indents by spaces");
  CHECK(parse_yaml("a: 1\t# a tab behind a value\n", "x.yaml").find("a") != nullptr);
  CHECK(message_of([] { parse_yaml("a: [1\n\tb: 2\n}", "x.yaml"); }).find("x.yaml:2:1: this line is") == 0);
}

TEST_CASE("Broken YAML names its place") {
  const std::string message = yaml_refusal("a: [1, 2\nb: 3\n");
  CHECK(message.starts_with("x.yaml:"));
  CHECK(message.find("this is not valid YAML:") != std::string::npos);
}

TEST_CASE("--set replaces, adds and reaches into lists") {
  Yaml root = parse_yaml("plan: {stages: 2}\nmodel: {layers: [{forward: 1 ms}, {forward: 2 ms}]}\n", "x.yaml");
  set(root, "plan.stages=4");
  set(root, "plan.partition={layers: [1, 1]}");
  set(root, "model.layers.1.forward=5 ms");
  set(root, "training.micro_batches=8");
  CHECK(root.find("plan")->find("stages")->scalar == "4");
  CHECK(root.find("plan")->find("partition")->find("layers")->list.size() == 2);
  CHECK(root.find("model")->find("layers")->list[1].find("forward")->scalar == "5 ms");
  CHECK(root.find("training")->find("micro_batches")->scalar == "8");
  CHECK(Place(root.find("plan")->find("stages")->place) == Place{"--set plan.stages=4", 0, 0});
}

TEST_CASE("--set key=null removes a key that is there, and nothing else") {
  Yaml root = parse_yaml("plan: {stages: 2, schedule: gpipe}\nlayers: [{a: 1, b: 2}, 2]\n", "x.yaml");
  set(root, "plan.stages=null");
  CHECK(root.find("plan")->find("stages") == nullptr);
  CHECK(root.find("plan")->find("schedule")->scalar == "gpipe");
  set(root, "layers.0.a=~");  // YAML's other word for it
  CHECK(root.find("layers")->list[0].map.size() == 1);
  const auto refused = [&](const std::string& text) { return message_of([&] { set(root, text); }); };
  CHECK(refused("plan.stages=null") == "--set plan.stages=null: there is no such key to remove; leave this --set out");
  CHECK(refused("none.stages=null") == "--set none.stages=null: there is no such key to remove; leave this --set out");
  CHECK(root.find("none") == nullptr);
  CHECK(refused("layers.1=null") ==
        "--set layers.1=null: an item of a list cannot be removed; give the whole list again");
  CHECK(refused("plan.schedule=") ==
        "--set plan.schedule=: has no value; write e.g. --set training.micro_batches=8, or =null to remove the key");
}

TEST_CASE("A --set that cannot be understood says so with its own text") {
  Yaml root = parse_yaml("plan: {stages: 2}\nlayers: [1, 2]\n", "x.yaml");
  const auto refused = [&](const std::string& text) { return message_of([&] { set(root, text); }); };
  CHECK(refused("plan.stages") == "--set plan.stages: has no value; write e.g. --set training.micro_batches=8");
  CHECK(refused("=4") == "--set =4: has no key; write e.g. --set training.micro_batches=8");
  CHECK(refused("plan..x=4") == "--set plan..x=4: has an empty key; write e.g. --set training.micro_batches=8");
  CHECK(refused("plan.stages.x=4") == "--set plan.stages.x=4: plan.stages is \"2\", not a map that could hold \"x\"");
  CHECK(refused("layers.2=4") == "--set layers.2=4: \"2\" is not an item of a list of 2; write a number from 0 to 1");
  CHECK(
      refused("plan.stages=[1").starts_with("--set plan.stages=[1: a key must be plain text; quote it, or close the"));
}
