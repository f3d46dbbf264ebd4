// A folder for the files of one test, removed afterwards, and the message that reading gives.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "io/read/read_scenario.hpp"

namespace pipewright::tests {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "pipewright-test-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

 private:
  std::string folder_;
};

// What `run` throws as InputError, with the scratch folder left out; "" when it throws nothing.
template <class Run>
std::string message_of(const Run& run, const std::string& folder = {}) {
  try {
    run();
  } catch (const InputError& error) {
    std::string message = error.what();
    for (std::size_t at = 0; !folder.empty() && (at = message.find(folder, at)) != std::string::npos;)
      message.erase(at, folder.size());
    return message;
  }
  return {};
}

// A scenario of two layers in which a test replaces one line.
struct ScenarioText {
  std::string model = "{layers: [{name: a, forward: 1 ms, backward: 2 ms}, {name: b, forward: 1 ms, backward: 2 ms}]}";
  std::string cluster = "{node: {devices: 2, device: {memory: 16 GiB}}}";
  std::string training = "{micro_batch_size: 1, micro_batches: 4}";
  std::string plan = "{stages: 2}";
  std::string more = "";
  std::string text() const {
    return "model: " + model + "\ncluster: " + cluster + "\ntraining: " + training + "\nplan: " + plan + "\n" + more;
  }
};

inline Scenario read_text(const std::string& text, const ReadOptions& options = {}) {
  const Scratch scratch;
  return read_scenario(scratch.write("x.yaml", text), options);
}
inline Scenario read_text(const ScenarioText& text, const ReadOptions& options = {}) {
  return read_text(text.text(), options);
}
inline std::string error_in(const std::string& text, const ReadOptions& options = {}) {
  const Scratch scratch;
  const std::string path = scratch.write("x.yaml", text);
  return message_of([&] { read_scenario(path, options); }, scratch.path(""));
}
inline std::string error_in(const ScenarioText& text, const ReadOptions& options = {}) {
  return error_in(text.text(), options);
}

}  // namespace pipewright::tests
