// Kernels for scores of rows and centres, compiled once per instruction set. All of them compute
// the canonical score of docs/numerics.md, so results do not depend on the instruction set.
#pragma once

#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/kernels/integer_products.hpp"
#include "exactmeans/kernels/panels.hpp"

namespace exactmeans {

// Sums of more than longest_chain terms in float32 are cut into pieces of `chain_piece` terms,
// whose sums are added in float64: that keeps the slack small. Chains in float64 are never cut.
inline constexpr Size longest_chain = 4096;
inline constexpr Size chain_piece = 256;

// For dense rows of up to this many features, lanes run across rows: transposing them costs less
// than it saves.
template <class R>
inline constexpr Size short_row_features = sizeof(R) == sizeof(float) ? 64 : 24;

// A multiple of the rows of every register tile of dense rows: callers cut rows at multiples of it.
inline constexpr Size dense_tile_rows = 48;

// `shift` may be null.
template <class R>
struct ScoreKernels {
    // The nearest centre of each row. The kernel itself shifts rows of up to short_row_features;
    // callers shift longer ones beforehand.
    void (*nearest_dense)(const R* const* rows, Size n, const R* shift, const Panels<R>& centres,
                          const Nearest<R>& out);
    void (*nearest_csr)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres,
                        const Nearest<R>& out);
    // The same for one panel, with second scores. Labels are places in the layout; panel p begins
    // at place panel(p).first. If all score offsets of the panel are infinite, the label is
    // meaningless.
    void (*panel_dense)(const R* const* rows, Size n, const Panels<R>& centres, Size p,
                        const Nearest<R>& out);
    void (*panel_csr)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres, Size p,
                      const Nearest<R>& out);
    // Scores of rows and one centre, given as minus its values by feature or packed column.
    void (*centre_dense)(const R* const* rows, Size n, const R* centre, R score_offset, Size d,
                         R* out);
    // Scores of n pairs: of row i and centre i, in the same form.
    void (*pairs_dense)(const R* const* rows, const R* const* centres, const R* score_offset,
                        Size n, Size d, R* out);
    void (*centre_csr)(const PackedCsrRow<R>* rows, Size n, const R* centre, R score_offset,
                       R* out);
    // Short rows, tile[f * n + i] with n a multiple of 32, against `count` centres, each stored as
    // its packed values and its score offset. Labels are positions in that list, the first on ties.
    void (*nearest_in_list)(const R* tile, Size n, Size d, const R* centres, Size count,
                            std::int32_t* label);
    // Reordered scores of a dense row and its candidates. `centres` has minus the values of all
    // centres, centre by centre.
    void (*listed_scores)(const R* row, const R* centres, const R* score_offset, Size d,
                          const Candidate* list, Size count, R* out);
    // out[i * k + j] = the score of row i and centre j
    void (*scores_dense)(const R* const* rows, Size n, const Panels<R>& centres, R* out);
    void (*scores_csr)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres, R* out);
    // The two lowest of each row's k scores. NaN scores are ignored, but if there are any, `second`
    // may be too low: equal to the lowest.
    void (*lowest_two)(const R* scores, Size n, Size k, const Nearest<R>& out);
    // The same for L1 distances, without second scores.
    void (*nearest_dense_l1)(const R* const* rows, Size n, const R* shift, const Panels<R>& centres,
                             const Nearest<R>& out);
    void (*nearest_csr_l1)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres,
                           const Nearest<R>& out);
    void (*scores_dense_l1)(const R* const* rows, Size n, const Panels<R>& centres, R* out);
    void (*scores_csr_l1)(const PackedCsrRow<R>* rows, Size n, const Panels<R>& centres, R* out);
    // Bounds, in block units, of the distance of row ids[t] to a centre with this score.
    void (*upper_bounds)(const ScoredRows<R>& rows, const Size* ids, const R* score, Size n,
                         float* out);
    void (*lower_bounds)(const ScoredRows<R>& rows, const Size* ids, const R* score, Size n,
                         float* out);
};

// The table of the active instruction set (dispatch.hpp).
template <class R>
const ScoreKernels<R>& score_kernels();

}  // namespace exactmeans
