// Precompiled for the tests: core/precompiled/standard.hpp says how it is meant.
#ifndef PIPEWRIGHT_TESTS_PRECOMPILED_TESTED_HPP
#define PIPEWRIGHT_TESTS_PRECOMPILED_TESTED_HPP

#include <random>
#include <sstream>

#include <doctest/doctest.h>

#include "core/precompiled/standard.hpp"

#endif
