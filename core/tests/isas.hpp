// The kernels of every instruction set that this CPU runs, the baseline first.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../src/kernels/isa.hpp"
#include "exactmeans/kernels/dispatch.hpp"

namespace samples {

inline std::vector<const exactmeans::Isa*> isas() {
    const std::vector<std::string> usable = exactmeans::usable_isas();
    std::vector<const exactmeans::Isa*> out;
    for (const exactmeans::Isa* isa : {
             &exactmeans::isa_baseline,
#if defined(__x86_64__)
             &exactmeans::isa_avx2,
             &exactmeans::isa_avxvnni,
             &exactmeans::isa_avx512,
             &exactmeans::isa_avx512vnni,
#if defined(__linux__)
             &exactmeans::isa_amx,
#endif
#elif defined(__aarch64__)
             &exactmeans::isa_neon,
             &exactmeans::isa_neondot,
#endif
         })
        if (std::find(usable.begin(), usable.end(), isa->name) != usable.end()) out.push_back(isa);
    return out;
}

}  // namespace samples
