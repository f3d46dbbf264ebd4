// What `show device` shows of one device: as tables, JSON and a plot.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/writers/device_figures.hpp"

namespace pipewright::io {

// What is known of one device, and what was asked of it.
struct ShownDevice {
  Device device;
  std::string file, summary;
  std::optional<CurveBase> base;  // absent: its curves, if any, have nothing to be shares of
  bool curve = false;
  std::optional<Bandwidth> links;  // of a node, per device and direction
  std::string links_from;          // "--links", "cluster dgx-h100x8"
  std::string points_file;         // "": none
  int every = 0;
  std::vector<MeasuredProduct> points;
  std::vector<std::string> written;
};

// Predicted over measured of the points that a test takes.
CurveErrors errors_where(const ShownDevice& shown, const std::function<bool(const MeasuredProduct&)>& taken);

std::string device_tables(const ShownDevice& shown, int width);  // device_tables.cpp
std::string device_json(const ShownDevice& shown);               // device_json.cpp: schema pipewright.show/1
std::string device_curve_svg(const ShownDevice& shown);          // device_plot.cpp

}  // namespace pipewright::io
