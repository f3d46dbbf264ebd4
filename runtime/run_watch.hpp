// What an endpoint knows of the run's other workers, for who waits for something that is not the endpoint's: a device.
#pragma once

#include <string>

namespace pipewright {

class RunWatch {
 public:
  // Throws what a wait of the endpoint would end with: Stopped, PeerSilent. `what`: is waited for.
  virtual void check(const std::string& what) = 0;
  // "" or whose process does not answer: "; the process of worker 1 does not answer". Takes a second at most.
  virtual std::string who_is_silent() = 0;

 protected:
  ~RunWatch() = default;
};

}  // namespace pipewright
