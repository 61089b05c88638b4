// A 128-bit hash of the values of a row. Rows with equal values have equal hashes: stored zeros of
// CSR rows and the sign of a zero do not count. It does not protect against deliberate collisions.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

class RowHash {
public:
    void add(Size feature, double value) {
        if (value == 0) return;
        const std::uint64_t word = std::bit_cast<std::uint64_t>(value);
        const std::uint64_t at = std::uint64_t(feature) + 1;
        first_ = mixed(first_ ^ word, 0xff51afd7ed558ccdu) + at * 0x9e3779b97f4a7c15u;
        second_ = mixed(second_ + word, 0xc4ceb9fe1a85ec53u) ^ (at * 0xc2b2ae3d27d4eb4fu);
    }
    std::pair<std::uint64_t, std::uint64_t> value() const {
        return {mixed(first_ + std::rotl(second_, 17), 0x9e3779b97f4a7c15u),
                mixed(second_ ^ std::rotl(first_, 31), 0xd6e8feb86659fd93u)};
    }

private:
    static std::uint64_t mixed(std::uint64_t state, std::uint64_t by) {
        state *= by;
        return state ^ (state >> 32);
    }

    std::uint64_t first_ = 0x243f6a8885a308d3u, second_ = 0x13198a2e03707344u;
};

template <class R>
std::pair<std::uint64_t, std::uint64_t> row_hash(const DenseRows<R>& x, Size i) {
    RowHash hash;
    for (Size f = 0; f < x.d; ++f) hash.add(f, double(x.at(i, f)));
    return hash.value();
}
template <class R, class I>
std::pair<std::uint64_t, std::uint64_t> row_hash(const CsrRows<R, I>& x, Size i) {
    RowHash hash;
    const SparseRow<R, I> row = x.row(i);
    for (Size t = 0; t < row.nonzeros; ++t) hash.add(Size(row.index[t]), double(row.value[t]));
    return hash.value();
}

}  // namespace exactmeans
