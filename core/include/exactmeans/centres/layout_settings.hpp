// Settings of the layouts of centres for CSR rows. All layouts of a cache share them.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

struct LayoutSettings {
    // The packed column of each feature in panels that have all of them; empty: ascending.
    std::vector<std::uint32_t> packed_columns;
    // Features of fewer centres than this are rare; 0: no feature is; negative: choose
    // automatically.
    Size rare_below = -1;
    // Limit, in bytes, of a layout with all features.
    double room = 0x1p62;

    const std::uint32_t* packed_columns_or_null() const {
        return packed_columns.empty() ? nullptr : packed_columns.data();
    }
    bool lists_rare_features() const { return rare_below > 0; }

    // Should a layout of sparse centres have a column for every feature? It would have `values`
    // values of `size` bytes, of which so many are nonzero. Yes if they fit in 32 MB, or if at
    // least 2 % of them are nonzero (1 % for 8-bit layouts up to 64 MB, which are cheap to repack)
    // and they fit in 512 MB.
    bool all_have_columns(double values, Size nonzeros, std::size_t size) const {
        const double bytes = values * double(size),
                     share = size < sizeof(float) && bytes <= 0x1p26 ? 0.01 : 0.02;
        return bytes <= room &&
               (bytes <= 0x1p25 || (double(nonzeros) >= share * values && bytes <= 0x1p29));
    }
};

}  // namespace exactmeans
