// The kernels of every instruction set that runs here, the baseline first.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../src/kernels/isa.hpp"
#include "exactmeans/kernels.hpp"

namespace samples {

inline std::vector<const exactmeans::Isa*> isas() {
    const std::vector<std::string> usable = exactmeans::usable_isas();
    std::vector<const exactmeans::Isa*> out;
    for (const exactmeans::Isa* isa : {
             &exactmeans::isa_baseline,
#if defined(__x86_64__) || defined(_M_X64)
             &exactmeans::isa_avx2,
             &exactmeans::isa_avx512,
#elif defined(__aarch64__) || defined(_M_ARM64)
             &exactmeans::isa_neon,
#endif
         })
        if (std::find(usable.begin(), usable.end(), isa->name) != usable.end()) out.push_back(isa);
    return out;
}

template <class R>
std::vector<const exactmeans::Kernels<R>*> tables() {
    std::vector<const exactmeans::Kernels<R>*> out;
    for (const exactmeans::Isa* isa : isas()) {
        if constexpr (sizeof(R) == 4) {
            out.push_back(&isa->single_precision);
        } else {
            out.push_back(&isa->double_precision);
        }
    }
    return out;
}

}  // namespace samples
