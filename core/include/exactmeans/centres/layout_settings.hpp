// Settings of the layouts of centres for CSR rows. All layouts of a cache share them.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"

namespace exactmeans {

struct LayoutSettings {
    // The packed column of each feature in panels with all features; empty: column f is feature f.
    std::vector<std::uint32_t> packed_columns;
    // Features of fewer centres than this are rare; 0: no feature is; negative: choose
    // automatically.
    Size rare_below = -1;
    // The most bytes of a layout with a column for every feature.
    double scratch_limit = 0x1p62;

    const std::uint32_t* packed_columns_or_null() const {
        return packed_columns.empty() ? nullptr : packed_columns.data();
    }
    bool lists_rare_features() const { return rare_below > 0; }

    // Should a layout of sparse centres have a column for every feature? It would have `values`
    // values of `size` bytes, of which `nonzeros` are not 0.
    bool all_have_columns(double values, Size nonzeros, std::size_t size) const {
        const double bytes = values * double(size),
                     share = size < sizeof(float) && bytes <= cost::small_codes_bytes
                                 ? cost::small_codes_share
                                 : cost::full_layout_share;
        return bytes <= scratch_limit &&
               (bytes <= cost::cached_layout_bytes ||
                (double(nonzeros) >= share * values && bytes <= cost::full_layout_bytes));
    }
};

}  // namespace exactmeans
