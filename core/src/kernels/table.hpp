// The kernels of one instruction set. Every function behind it is a template over V, and each V
// lives in an anonymous namespace, so that no code compiled for one instruction set can be linked
// into another.
#pragma once

#include "bounds.hpp"
#include "centre.hpp"
#include "coarse.hpp"
#include "csr.hpp"
#include "dense.hpp"
#include "listed.hpp"
#include "thin.hpp"
#include "vectors.hpp"

namespace exactmeans {

template <class V>
constexpr Kernels<typename V::Real> table(const char* isa) {
    using R = typename V::Real;
    constexpr CoarseKernels<V> coarse;
    return {isa,
            &nearest_dense<V>,
            &nearest_csr<V>,
            coarse.rows,
            coarse.csr,
            coarse.reach,
            coarse.follow,
            coarse.below,
            coarse.products,
            &panel_dense<V>,
            &panel_csr<V>,
            &centre_dense<V>,
            &centre_csr<V>,
            &score_bounds<V, true>,
            &score_bounds<V, false>,
            &nearest_listed<V>,
            &scores_dense<V, Product<V>>,
            &scores_csr<V, Product<V>>,
            &lowest_two<V>,
            &nearest_dense_rows<V, false, Gap<V>>,
            &nearest_csr_rows<V, false, StoredGap<V>>,
            &scores_dense<V, Gap<V>>,
            &scores_csr<V, StoredGap<V>>,
            &sizes<V>,
            &square_sum<V>,
            &distance2<V, R>,
            &distance2<V, double>,
            &stored_distance2<V>,
            &product<V>,
            &step2<V>,
            &explained<V>,
            &listed_square_sum<V>,
            &listed_step2<V>,
            &listed_explained<V>,
            &listed_way<V>,
            &fits_words<V>,
            &add_row<V>,
            &add_row2<V>,
            &to_singles<V>,
            &mean<V>};
}

}  // namespace exactmeans
