// Scores of rows and centres, compiled once per instruction set. All of these functions compute the
// canonical score of docs/numerics.md, so the instruction set never changes a bit.
#pragma once

#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/kernels/panels.hpp"

namespace exactmeans {

// float32 chains longer than this are cut into pieces of `chain_piece` features whose sums are
// added in float64, so that the rounding slack stays small. float64 needs no pieces.
inline constexpr Size longest_chain = 4096;
inline constexpr Size chain_piece = 256;

// Dense rows of up to this many features are compared with lanes across rows: transposing them
// costs less than it saves.
template <class R>
inline constexpr Size short_row_features = sizeof(R) == sizeof(float) ? 64 : 24;

// `shift` may be null.
template <class R>
struct ScoreKernels {
    // The kernel shifts rows of up to short_row_features; callers shift longer ones beforehand.
    void (*nearest_dense)(const R* const* rows, Size n, const R* shift, const Panels<R>& centres,
                          const Nearest<R>& out);
    void (*nearest_csr)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres,
                        const Nearest<R>& out);
    // nearest_* for one panel, with a second; labels are places in the layout, of which panel p
    // begins at panel(p).first. If all of them start at infinity, the label means nothing.
    void (*panel_dense)(const R* const* rows, Size n, const Panels<R>& centres, Size p,
                        const Nearest<R>& out);
    void (*panel_csr)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres, Size p,
                      const Nearest<R>& out);
    // Scores of rows and one centre, given as minus its values, by feature or slot.
    void (*centre_dense)(const R* const* rows, Size n, const R* centre, R score_offset, Size d,
                         R* out);
    void (*centre_csr)(const PackedCsrRow<R>* rows, Size n, const R* centre, R score_offset,
                       R* out);
    // Rows of few features, tile[f * n + i], n a multiple of 32, against `count` centres: packed
    // values and start of each. Labels are numbers in that list, the first on ties.
    void (*nearest_in_list)(const R* tile, Size n, Size d, const R* centres, Size count,
                            std::int32_t* label);
    // out[i * k + j] = the score of row i and centre j
    void (*scores_dense)(const R* const* rows, Size n, const Panels<R>& centres, R* out);
    void (*scores_csr)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres, R* out);
    // The two lowest of each row's k scores.
    void (*lowest_two)(const R* scores, Size n, Size k, const Nearest<R>& out);
    // The same by L1 distances, without the second lowest.
    void (*nearest_dense_l1)(const R* const* rows, Size n, const R* shift, const Panels<R>& centres,
                             const Nearest<R>& out);
    void (*nearest_csr_l1)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres,
                           const Nearest<R>& out);
    void (*scores_dense_l1)(const R* const* rows, Size n, const Panels<R>& centres, R* out);
    void (*scores_csr_l1)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres, R* out);
    // Bounds, in block units, of the distance of row ids[t] to a centre of this score.
    void (*upper_bounds)(const ScoredRows<R>& rows, const Size* ids, const R* score, Size n,
                         float* out);
    void (*lower_bounds)(const ScoredRows<R>& rows, const Size* ids, const R* score, Size n,
                         float* out);
};

// The table of the active instruction set (dispatch.hpp).
template <class R>
const ScoreKernels<R>& score_kernels();

}  // namespace exactmeans
