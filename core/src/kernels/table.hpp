// The kernel tables of one instruction set. Every kernel is a template over V, and each V is in an
// anonymous namespace, so that the linker never merges code of two instruction sets.
#pragma once

#include "bounds.hpp"
#include "centre.hpp"
#include "csr.hpp"
#include "dense.hpp"
#include "dense_filter.hpp"
#include "integer_products.hpp"
#include "isa.hpp"
#include "quantized.hpp"
#include "short_rows.hpp"
#include "sparse.hpp"
#include "vectors.hpp"

namespace exactmeans {

template <class V>
constexpr ScoreKernels<typename V::Real> score_table() {
    return {.nearest_dense = &nearest_dense<V>,
            .nearest_csr = &nearest_csr<V>,
            .panel_dense = &panel_dense<V>,
            .panel_csr = &panel_csr<V>,
            .centre_dense = &centre_dense<V>,
            .pairs_dense = &pairs_dense<V>,
            .centre_csr = &centre_csr<V>,
            .nearest_in_list = &nearest_in_list<V>,
            .listed_scores = &listed_scores<V>,
            .scores_dense = &scores_dense<V, Product<V>>,
            .scores_csr = &scores_csr<V, Product<V>>,
            .lowest_two = &lowest_two<V>,
            .nearest_dense_l1 = &nearest_dense_rows<V, false, AbsoluteDifference<V>>,
            .nearest_csr_l1 = &nearest_csr_rows<V, false, StoredAbsoluteDifference<V>>,
            .scores_dense_l1 = &scores_dense<V, AbsoluteDifference<V>>,
            .scores_csr_l1 = &scores_csr<V, StoredAbsoluteDifference<V>>,
            .upper_bounds = &score_bounds<V, true>,
            .lower_bounds = &score_bounds<V, false>};
}

template <class V>
constexpr VectorKernels<typename V::Real> vector_table() {
    using R = typename V::Real;
    return {.sizes = &sizes<V>,
            .square_sum = &square_sum<V>,
            .distance2 = &distance2<V, R>,
            .distance2_double = &distance2<V, double>,
            .stored_distance2 = &stored_distance2<V>,
            .product = &product<V>,
            .step2 = &step2<V>,
            .explained = &explained<V>,
            .sparse_square_sum = &sparse_square_sum<V>,
            .sparse_step2 = &sparse_step2<V>,
            .sparse_explained = &sparse_explained<V>,
            .sparse_update = &sparse_update<V>,
            .fits_bins = &fits_bins<V>,
            .add_row = &add_row<V>,
            .add_row2 = &add_row2<V>,
            .to_float32 = &to_float32<V>,
            .centred = &centred<V>,
            .mean = &mean<V>};
}

// All tables, for vectors of float32 and of float64.
template <class Single, class Double>
struct Tables {
    static constexpr ScoreKernels<float> single_scores = score_table<Single>();
    static constexpr ScoreKernels<double> double_scores = score_table<Double>();
    static constexpr VectorKernels<float> single_vectors = vector_table<Single>();
    static constexpr VectorKernels<double> double_vectors = vector_table<Double>();
    static constexpr QuantizedKernels quantized = quantized_table<Single>();
    static constexpr FilterKernels filter = filter_table<Single>();
};

template <class Single, class Double>
constexpr Isa isa_of(const char* name, const BoundKernels& bounds, const SeedKernels& seeds,
                     const IntegerProducts& products = plain_products) {
    using Own = Tables<Single, Double>;
    return {.name = name,
            .single_scores = Own::single_scores,
            .double_scores = Own::double_scores,
            .single_vectors = Own::single_vectors,
            .double_vectors = Own::double_vectors,
            .quantized = Own::quantized,
            .bounds = bounds,
            .seeds = seeds,
            .filter = Own::filter,
            .products = products};
}

}  // namespace exactmeans
