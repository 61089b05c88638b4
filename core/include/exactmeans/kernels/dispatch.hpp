// Which instruction set the kernels use. The tables themselves are in scores.hpp, quantized.hpp,
// vectors.hpp, bounds.hpp and seeding.hpp.
#pragma once

#include <string>
#include <vector>

namespace exactmeans {

// Names of the instruction sets that were compiled in and can run here, best first.
std::vector<std::string> usable_isas();
// The best one, or the one that EXACTMEANS_ISA names (std::invalid_argument if that is unknown or
// cannot run here).
std::string active_isa();

}  // namespace exactmeans
