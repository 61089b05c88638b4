// The kernels of every instruction set that runs here.
#pragma once

#include <algorithm>
#include <vector>

#include "../src/kernels/isa.hpp"
#include "exactmeans/kernels.hpp"

namespace samples {

template <class R>
std::vector<const exactmeans::Kernels<R>*> tables() {
    std::vector<const exactmeans::Kernels<R>*> out;
    const auto add = [&](const exactmeans::Isa& isa) {
        const std::vector<std::string> usable = exactmeans::usable_isas();
        if (std::find(usable.begin(), usable.end(), isa.name) == usable.end()) return;
        if constexpr (sizeof(R) == 4) {
            out.push_back(&isa.single_precision);
        } else {
            out.push_back(&isa.double_precision);
        }
    };
    add(exactmeans::isa_baseline);
#if defined(__x86_64__) || defined(_M_X64)
    add(exactmeans::isa_avx2);
    add(exactmeans::isa_avx512);
#elif defined(__aarch64__) || defined(_M_ARM64)
    add(exactmeans::isa_neon);
#endif
    return out;
}

}  // namespace samples
