// How the GPUs of a machine are wired, from the two files that tell it, as a `cluster:` block to look over:
// what `nvidia-smi topo -m` prints (a matrix of classes, no speeds) and what NCCL writes to NCCL_TOPO_DUMP_FILE (XML
// with speeds).
//
// Rates, per direction:
//   NVLink   links x rate of one        generation 1: 20 GB/s, 2 to 4: 25, 5: 50; GA102: 14.0625     [NVLinkRates]
//   PCIe     GT/s x lanes x 8/10 (2.5 and 5 GT/s) or 128/130 (8, 16, 32) / 8                        [PCIe]
//   18 links of an H100: 450 GB/s. 32 GT/s x 16 lanes: 63.015 GB/s.   tests/io/topology_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/units.hpp"
#include "io/import/import_source.hpp"

namespace pipewright {

struct NetworkCard {
  std::string name;
  std::optional<Bandwidth> rate;
};

struct MachineTopology {
  ImportSource source;
  std::vector<std::string> gpus;             // as the file names them
  std::vector<std::vector<int>> nvlinks;     // by pair of them: links between the two; 0: none
  std::vector<std::vector<std::string>> by;  // by pair: "NV18", "PIX", "SYS"; "": the file does not say
  std::vector<int> switch_links;             // by GPU: links into an NVSwitch
  std::vector<NetworkCard> cards;
  std::vector<std::vector<std::size_t>> near;  // by GPU: cards behind the same PCIe switch
  std::optional<Bandwidth> nvlink_rate;        // of one link
  std::optional<Bandwidth> pcie_rate;          // of the narrowest GPU
  std::string device;                          // preset that the file's GPUs are; "": it does not say
};

// Throw InputError with file:line:column: no such file, a cell or attribute that is none, a matrix that is not
// symmetric.
MachineTopology parse_topo_matrix(const std::string& text, const std::string& file);
MachineTopology parse_nccl_xml(const std::string& text, const std::string& file);
MachineTopology read_topo_matrix(const std::string& path);
MachineTopology read_nccl_xml(const std::string& path);

// What the file leaves open, from the command line.
struct TopologyOptions {
  std::string device;                     // preset
  std::optional<Bandwidth> nvlink, pcie;  // of one link; of a GPU's slot
  std::optional<Bandwidth> nic;           // of one card
  std::int64_t nodes = 1;
};

// A file `cluster:` with what was found as comments. Throws InputError for what neither the file nor an option tells,
// naming the option.
std::string cluster_file(MachineTopology topology, const TopologyOptions& options);

// 32 GT/s, 16 lanes: 63.015 GB/s. Nothing for a rate that is none of PCIe 1 to 5.
std::optional<Bandwidth> pcie_rate(double gigatransfers, std::int64_t lanes);

}  // namespace pipewright
