// Precompiled once per room, for speed of the build only: every file includes what it uses, and -Db_pch=false builds
// without (docs/decisions/0016-build-time.md). Guards, since a main file with #pragma once is a warning.
#ifndef PIPEWRIGHT_CORE_PRECOMPILED_STANDARD_HPP
#define PIPEWRIGHT_CORE_PRECOMPILED_STANDARD_HPP

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#endif
