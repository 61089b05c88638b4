// The choice of the instruction set. The kernel tables are declared in scores.hpp, quantized.hpp,
// integer_products.hpp, vectors.hpp, bounds.hpp and seeding.hpp.
#pragma once

#include <string>
#include <vector>

namespace exactmeans {

// Names of the compiled instruction sets that this CPU can run, best first.
std::vector<std::string> usable_isas();
// The best instruction set, or the one that EXACTMEANS_ISA names. Throws std::invalid_argument if
// that one is unknown or this CPU cannot run it.
std::string active_isa();

}  // namespace exactmeans
