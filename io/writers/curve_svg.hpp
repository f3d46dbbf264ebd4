// Curves over sizes: panels with lines and clouds of points over a logarithmic axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pipewright {

struct CurveSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y
  enum class Mark { Line, Dashes, Dots } mark = Mark::Line;
  int colour = 0;     // 0 ... 5
  bool named = true;  // has a line of the legend
};

struct CurvePanel {
  std::string title, below;                           // above it; of the axis
  std::vector<std::pair<double, std::string>> marks;  // of the axis, which reaches from the first to the last
  double least = 0, most = 1, step = 0.2;             // shares on the other axis; what is beyond is drawn at the edge
  bool is_error = false;                              // shares have their sign
  std::vector<CurveSeries> series;
};

std::string curve_svg(const std::string& title, const std::string& what, const std::vector<CurvePanel>& panels);

}  // namespace pipewright
