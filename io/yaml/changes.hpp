// Values changed in a scenario before it is read: `--set`, the rows of `expect:` and `vary:`, the points of a sweep.
// Inside io only.
#pragma once

#include <string>
#include <vector>

#include "io/yaml/fields.hpp"

namespace pipewright::io {

// A value on one line, as YAML reads it back: "8", "[1, 2]", "{layers: [3, 3]}".
std::string flow_text(const Yaml& yaml);

// "plan.stages": the keys that lead to a value. False where that is no key, or one of the blocks that ask for changes;
// then an error has been added, which begins with `where`.
bool read_keys(Reader& reader, const Place& place, const std::string& where, const std::string& dotted,
               std::vector<std::string>& keys);

// Changes the values in a scenario's tree, those first that choose the form of `model`. A file that the tree names
// (`cluster: dgx`) takes the place of its name where a value inside it is changed.
void apply_changes(Reader& reader, Yaml& root, std::vector<Assignment> assignments);
void expand_references(Reader& reader, Yaml& root, const Assignment& assignment);

// `plan: auto` also leaves open what copies divide among them, where the scenario does not say: `training.zero: auto`.
void open_zero(Yaml& root);

}  // namespace pipewright::io
