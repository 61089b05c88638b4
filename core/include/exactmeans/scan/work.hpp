// The input of a pass of an algorithm, and buffers of its threads.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/score_error.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/filter/dense_codes.hpp"
#include "exactmeans/kernels/quantized.hpp"
#include "exactmeans/scan/row_slacks.hpp"

namespace exactmeans {

// The input of one pass of an algorithm: a block of rows, the centres, and the labels of the block.
template <class Rows>
struct Work {
    using R = typename Rows::Real;

    const Rows& x;
    SharedCentres<R>& shared;
    std::int32_t* labels;
    RowSlacks<R>& slacks;
    DenseCodes<R>* codes;  // null: the pass does without the 8-bit filter
    HeldPanels<R> panels{};
    HeldPanels<float> float32_panels{};  // used instead of `panels` if it has posting lists
    ScoreError score_error{};            // if panels or float32_panels have posting lists

    const Centres<R>& centroids = shared.centres;
    LayoutCache<R>& layouts = shared.layouts;

    Work(const Rows& rows, SharedCentres<R>& centres, std::int32_t* row_labels,
         RowSlacks<R>& row_slacks, DenseCodes<R>* row_codes = nullptr)
        : x(rows), shared(centres), labels(row_labels), slacks(row_slacks), codes(row_codes) {}

    // Lays out all centres. Required before Scan::nearest.
    void pack_centres(const Threads& threads) {
        panels = layouts.panels(centroids, is_dense<Rows>, threads);
        if (reordered()) score_error = ScoreError(centroids);
    }
    // Lays out all centres in float32, which takes half the memory. Enough for Scan::nearest
    // without second scores and for Scan::nearest_two. Returns false if these rows or centres do
    // not allow it.
    bool pack_float32(const Threads& threads) {
        if constexpr (is_dense<Rows> || sizeof(R) == sizeof(float)) {
            return false;
        } else {
            if (!centroids.sparse() || !centroids.frame().packs_as_is() ||
                !scores_are_products(centroids.frame().metric))
                return false;
            score_error = ScoreError(centroids);
            if (!score_error.fits_float32()) return false;
            float32_panels = layouts.float32_panels(centroids, threads);
            if (float32_panels.postings) measure_rows(threads);
            return float32_panels.postings != nullptr;
        }
    }
    // Computes norms and slack of the rows. Required before slack() and any bound.
    void measure_rows(const Threads& threads) { slacks.update(x, centroids, threads); }
    // True if labels may come from scores that are summed in another order than the canonical one.
    // Needs pack_centres and measure_rows.
    bool reordered() const {
        return panels.postings && scores_are_products(centroids.frame().metric);
    }
    RowSlack slack(Size i) const { return slacks.of(x, centroids, i); }
};

// Buffers of one thread that algorithms reuse from range to range (assign/group_range.hpp).
template <class R>
struct Workspace {
    std::vector<Size> id, picked_id;
    std::vector<float> bound, reach, near, far;
    std::vector<std::int32_t> survivors, label, own_group, remaining;
    std::vector<R> score, second, own_group_score;
    std::vector<DeltaSums> delta_sums;
    std::vector<std::vector<std::int32_t>> picks;
};

}  // namespace exactmeans
