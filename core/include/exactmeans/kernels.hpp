// Block functions that do the arithmetic, compiled once per instruction set and chosen once per process. All
// of them compute the canonical score of docs/numerics.md, so which one runs never changes a bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exactmeans/rows.hpp"

namespace exactmeans {

// Lanes run across centres; a panel is one cache line of them.
template <class R>
inline constexpr Size panel_width = Size(64 / sizeof(R));

// float32 chains longer than this are cut into pieces of `chain_piece` features whose sums are added in
// float64, so that the rounding slack stays small. float64 needs no such care.
inline constexpr Size longest_chain = 4096;
inline constexpr Size chain_piece = 256;

// Both layouts hold minus the (shifted, scaled) centres and, in `start`, half their squared norms; centres
// that only fill up the last panel start at infinity.
template <class R>
struct Panels {  // value of centre p * panel_width + lane, feature f: values[(p * d + f) * panel_width + lane]
    const R* values;
    const R* start;
    Size k, d;
    Size count() const { return (k + panel_width<R> - 1) / panel_width<R>; }
};

template <class R>
struct FeatureMajor {  // value of centre j, feature f: values[f * width + j]
    const R* values;
    const R* start;
    Size k, d;
    Size width() const { return (k + panel_width<R> - 1) / panel_width<R> * panel_width<R>; }
};

// Per row: the nearest centre (lowest index on ties), its score and, if asked for, the second lowest score.
template <class R>
struct Nearest {
    std::int32_t* label;
    R* score;
    R* second;  // may be null
};

template <class R>
struct Kernels {
    const char* isa;
    void (*nearest_dense)(const R* const* rows, Size n, const Panels<R>& centres, const Nearest<R>& out);
    void (*nearest_csr32)(const SparseRow<R, std::int32_t>* rows, Size n, const FeatureMajor<R>& centres,
                          const Nearest<R>& out);
    void (*nearest_csr64)(const SparseRow<R, std::int64_t>* rows, Size n, const FeatureMajor<R>& centres,
                          const Nearest<R>& out);
};

// The best set of this CPU, or the one that EXACTMEANS_ISA names (std::invalid_argument if that is unknown or
// cannot run here).
template <class R>
const Kernels<R>& kernels();

// Names of the instruction sets that were compiled in and can run here, best first.
std::vector<std::string> usable_isas();
std::string active_isa();

}  // namespace exactmeans
