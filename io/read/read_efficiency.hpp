// Which share of its peaks a device reaches, and curves of kernels and collectives by size, as a device states them. Inside io only.
#pragma once

#include <vector>

#include "io/yaml/sections.hpp"

namespace pipewright::io {

void read_efficiency(Reader& reader, const At& at, Device& device);
void write_efficiency(YamlText& out, std::string_view key, const Device& device);
void read_collectives(Reader& reader, const At& at, Device& device);
void write_collectives(YamlText& out, std::string_view key, const Device& device);
void read_messages(Reader& reader, const At& at, Device& device);
void write_messages(YamlText& out, std::string_view key, const Device& device);
std::vector<SectionDoc> kernel_curve_docs();

}  // namespace pipewright::io
