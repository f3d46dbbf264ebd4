// Where a process of a run is: its machine, its number there, its cores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/bytes.hpp"

namespace pipewright::runtime {

struct Home {
  std::string boot;       // of the machine's system: processes with the same one share a clock
  std::string processes;  // the space that process numbers are from
  std::int64_t process = 0;
  std::vector<int> cores;
};

Home home();  // of this process
Blob bytes_of(const Home& home);
Home home_of(BytesIn in);

// Ended, and not only silent. Of a process of another machine nothing is known.
bool process_is_gone(const Home& there, const Home& here);

}  // namespace pipewright::runtime
