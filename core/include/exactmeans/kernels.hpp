// Block functions that do the arithmetic, compiled once per instruction set and chosen once per
// process. All of them compute the canonical score of docs/numerics.md, so which one runs never
// changes a bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exactmeans/bounds.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

// Lanes run across centres, in units of 32 bytes: one AVX2 vector, two of NEON's, half of
// AVX-512's. Centres are padded to whole units only, so that a small k does not pay for lanes it
// does not have.
template <class R>
inline constexpr Size unit_width = Size(32 / sizeof(R));
template <class R>
constexpr Size padded(Size k) {
    return (k + unit_width<R> - 1) / unit_width<R> * unit_width<R>;
}

// Kernels carry centre numbers in lanes of reals, and float32 counts no further.
inline constexpr Size largest_k = Size(1) << 24;

// float32 chains longer than this are cut into pieces of `chain_piece` features whose sums are
// added in float64, so that the rounding slack stays small. float64 needs no such care.
inline constexpr Size longest_chain = 4096;
inline constexpr Size chain_piece = 256;

// Dense rows of up to this many features are compared with lanes across rows: turning them costs
// less than what it saves.
template <class R>
inline constexpr Size thin_features = sizeof(R) == sizeof(float) ? 64 : 24;

// What a rare feature adds to one centre: its place in the layout and minus its (scaled) value.
template <class R>
struct Posting {
    static constexpr std::uint32_t last = std::uint32_t(1) << 31;  // of this feature: a flag
    std::uint32_t place;
    R value;
};
inline constexpr std::uint32_t no_slot = ~std::uint32_t(0);

// The layout of the centres that kernels read: minus the (shifted, scaled) centres, cut into
// `count` panels of whole units, each feature by feature. With `first` a panel's first centre and
// `width` its lanes, feature f of centre first + lane is values[first * d + f * width + lane].
// `start` has half the squared norms; centres that only fill up the last unit start at infinity.
//
// For CSR rows, f is a slot: slots[feature], or the feature itself if that is null. Where there are
// postings, slot d - 1 is all zeros, slots from d on mean postings[slot - d] and what follows it,
// and features of no centre have no_slot.
template <class R>
struct Panels {
    const R* values = nullptr;
    const R* start = nullptr;
    Size k = 0, d = 0;
    Size count = 0;
    const std::uint32_t* slots = nullptr;
    const Posting<R>* postings = nullptr;

    struct Panel {
        Size first, units;
        Size width() const { return units * unit_width<R>; }
    };
    Panel panel(Size p) const {
        const Size units = padded<R>(k) / unit_width<R>;
        const Size from = p * units / count, to = (p + 1) * units / count;
        return {from * unit_width<R>, to - from};
    }
};

// Panels of two units, but for a three or a single one that is left over, so that six rows by two
// vectors fill the registers.
template <class R>
Size dense_panels(Size k) {
    const Size units = padded<R>(k) / unit_width<R>;
    return units < 2 ? 1 : units / 2;
}
// As wide as the registers allow: every nonzero is read once per panel.
inline constexpr Size csr_units = 14;
template <class R>
Size csr_panels(Size k) {
    return (padded<R>(k) / unit_width<R> + csr_units - 1) / csr_units;
}

// What a CSR row's entry in a rare feature does to one centre: x * value is added to its sum before
// the entry `at` of the row's others is.
template <class R>
struct Hit {
    std::uint32_t at, place;
    R x, value;
};

// A CSR row whose features have been looked up: index[t] is the slot where the panels keep that
// feature. Hits come by panel, in each in the order of `at`.
template <class R>
struct SlotRow {
    const std::uint32_t* index;
    const R* value;
    Size nonzeros;
    const Hit<R>* hits = nullptr;
    const Hit<R>* hits_end = nullptr;
};

// Centres of 8 bits (coarse.hpp), cut into panels like others are, but in units of 64: a line of
// the cache for each feature, of words of 16 bits. The low byte of word l is for place l of the
// unit, the whole word, which is counted in parts of 2^8 to a step, for place l + 32. Quarters of
// the only panel are groups of places, whose lowest scores are kept apart. Places without a centre
// start at infinity.
struct CoarsePanels {
    static constexpr Size unit = 64, most_units = 3, most_groups = 4;
    const std::int8_t* values = nullptr;
    const float* start = nullptr;
    Size k = 0, d = 0;

    static constexpr Size padded(Size k) { return (k + unit - 1) / unit * unit; }
    Size places() const { return padded(k); }
    Size count() const { return (places() / unit + most_units - 1) / most_units; }
    struct Panel {
        Size first, units;
        Size width() const { return units * unit; }
    };
    Panel panel(Size p) const {
        const Size units = places() / unit, from = p * units / count(),
                   to = (p + 1) * units / count();
        return {from * unit, to - from};
    }

    // Several panels are one group.
    Size groups() const { return count() == 1 ? most_groups : 1; }
    // Where a group begins; behind the last one, where that ends.
    Size group(Size g) const { return g * places() / groups(); }
};
// Entries behind a row that may be read: centres are fetched this many ahead, which is about what
// the third cache takes, and vectors may end behind the row.
inline constexpr Size coarse_ahead = 16;
// A CSR row for them: whole numbers whose magnitudes add up to less than 2^15. The sum of products
// with parts, each divided by 2^15 and rounded, times `unit` is its score, but for a start. `sum`
// is that of its entries times steps, and `size` of their magnitudes.
struct CoarseRow {
    const std::uint32_t* index;  // and coarse_ahead more
    std::int16_t* value;
    Size nonzeros;
    float unit, sum, size;

    // What is not smaller or longer than that has zeros only, and unit 0.
    static constexpr float largest = 0x1p100f;
    static constexpr Size longest = 8192;
};

// Sums over a row of x+ a + x- b, and of x+ b + x- a, for a and b by feature (steps.hpp).
struct CoarseReach {
    float fall, rise;
};
// The same for each group of centres: by feature a of every group, then b, in first halves of
// float32s.
struct GroupSteps {
    std::uint16_t half[2 * CoarsePanels::most_groups];
};
// How centres moved (shifts.hpp): by feature; what else scores of each group may have lost, and
// what rounding adds to either; what underflow does for each entry; and by how much the start of
// each centre's scores rose, and its group, which is negative if it stands still.
struct GroupShifts {
    struct Centre {
        float rise;
        std::int32_t group;
    };
    const GroupSteps* table;
    const Centre* centres;
    float fall[CoarsePanels::most_groups], extra[CoarsePanels::most_groups], tiny;
};
// The highest score that a row's centre may have, and the lowest of all others in each group.
struct RowBounds {
    float high, low[CoarsePanels::most_groups];
};

// Memory that is read after a call, which asks for a part of it with every row: data that comes
// from far away is on its way while the call works in the caches.
struct Upcoming {
    struct Range {
        const void* begin = nullptr;
        Size bytes = 0;
    };
    Range ranges[2];
};

// Per row: the nearest centre (lowest index on ties), its score and, if asked for, the second
// lowest score.
template <class R>
struct Nearest {
    std::int32_t* label;
    R* score;
    R* second;  // may be null
};

// A sum of squares or products to twice the precision of a double: high + low.
struct SquareSum {
    double high, low;
    double value() const { return high + low; }
};

// What a listed centre explained, how far it went and how far from 0 it is now.
struct ListedWay {
    double explained, step2;
    SquareSum square_sum;
};

// `shift` may be null in all of these; `scale` is a power of two.
template <class R>
struct Kernels {
    const char* isa;
    // Thin rows are still to be shifted; all others have been, wherever there is a shift.
    void (*nearest_dense)(const R* const* rows, Size n, const R* shift, const Panels<R>& centres,
                          const Nearest<R>& out);
    void (*nearest_csr)(const SlotRow<R>* rows, Size n, const Panels<R>& centres,
                        const Nearest<R>& out);
    // The following are for float32 only. Makes rows ready for centres of 8 bits with these steps
    // by feature. `out` has all but the last three of its members; where nonzeros are behind one
    // another, one vector more may be written. `sized` is room for the longest row and a vector.
    void (*coarse_rows)(const SlotRow<R>* rows, Size n, const R* step, R* sized, CoarseRow* out);
    // By their scores the lowest place of each group, with a second: that of group g and row i
    // stands at [g * n + i]; lows[p * n + i] is the lowest score of panel p, if there are several.
    void (*coarse_csr)(const CoarseRow* rows, Size n, const CoarsePanels& centres,
                       const Nearest<R>& out, R* lows, const Upcoming& next);
    // How far centres moved, as rows see it. The words of a table by feature are a, as bits of a
    // float32, and their low halves, moved up, are b.
    void (*coarse_reach)(const SlotRow<R>* rows, Size n, const R* table, CoarseReach* out);
    // Bounds of rows with these labels, of which any may have entries below 0 or none has, follow
    // the centres. Lists the rows that they no longer tell the labels of, and returns their number.
    Size (*follow)(const SlotRow<R>* rows, Size n, bool any_below, const GroupShifts& shifts,
                   const std::int32_t* labels, RowBounds* bounds, std::int32_t* left);
    // Lists the places of a panel whose scores are not above a limit, at most as many as it has;
    // returns their number, and lowers others[g] to the lowest of all other scores of group g.
    Size (*coarse_below)(const CoarseRow& row, const CoarsePanels& centres, Size p, R limit,
                         std::int32_t* list, R* others);
    // Products of rows and one centre, its values by feature, a vector of them at a time;
    // coarse_ahead entries behind a row may be read.
    void (*loose_products)(const SlotRow<R>* rows, Size n, const R* centre, R* out);
    // nearest_* for one panel, with a second; labels are places in the layout, of which panel p
    // begins at panel(p).first. If all of them start at infinity, the label means nothing.
    void (*panel_dense)(const R* const* rows, Size n, const Panels<R>& centres, Size p,
                        const Nearest<R>& out);
    void (*panel_csr)(const SlotRow<R>* rows, Size n, const Panels<R>& centres, Size p,
                      const Nearest<R>& out);
    // Scores of rows and one centre, given as minus its values, by feature or slot.
    void (*centre_dense)(const R* const* rows, Size n, const R* centre, R start, Size d, R* out);
    void (*centre_csr)(const SlotRow<R>* rows, Size n, const R* centre, R start, R* out);
    // The distance of row ids[t] to a centre of this score, in units: not below (above) the truth.
    void (*upper_bounds)(const ScoredRows<R>& rows, const Size* ids, const R* score, Size n,
                         float* out);
    void (*lower_bounds)(const ScoredRows<R>& rows, const Size* ids, const R* score, Size n,
                         float* out);
    // Rows of few features, tile[f * n + i], n a multiple of 32, against `count` centres: packed
    // values and start of each. Labels are numbers in that list, the first on ties.
    void (*nearest_listed)(const R* tile, Size n, Size d, const R* centres, Size count,
                           std::int32_t* label);
    // out[i * k + j] = the score of row i and centre j
    void (*scores_dense)(const R* const* rows, Size n, const Panels<R>& centres, R* out);
    void (*scores_csr)(const SlotRow<R>* rows, Size n, const Panels<R>& centres, R* out);
    // of such scores the lowest of each row, with a second
    void (*lowest_two)(const R* scores, Size n, Size k, const Nearest<R>& out);
    // scores by L1 distances, without the second lowest
    void (*nearest_dense_l1)(const R* const* rows, Size n, const R* shift, const Panels<R>& centres,
                             const Nearest<R>& out);
    void (*nearest_csr_l1)(const SlotRow<R>* rows, Size n, const Panels<R>& centres,
                           const Nearest<R>& out);
    void (*scores_dense_l1)(const R* const* rows, Size n, const Panels<R>& centres, R* out);
    void (*scores_csr_l1)(const SlotRow<R>* rows, Size n, const Panels<R>& centres, R* out);
    // Are all of them finite? Raises `largest` to the largest |x|, and bounds[f] to |pull x|.
    bool (*sizes)(const R* x, Size d, double pull, double& largest, double* bounds);
    // sum of ((x - shift) scale)^2
    SquareSum (*square_sum)(const R* x, const R* shift, Size d, double scale);
    // sum of ((x - c) scale)^2, compensated
    double (*distance2)(const R* x, const R* c, Size d, double scale);
    double (*distance2_double)(const R* x, const double* c, Size d, double scale);
    // sum of ((x - c)^2 - c^2) scale^2 over the n stored entries of a CSR row, compensated
    SquareSum (*stored_distance2)(const R* x, const double* c, Size n, double scale);
    // sum of x c scale over n entries, compensated
    SquareSum (*product)(const R* x, const double* c, Size n, double scale);
    // sum of (((a - shift) - (b - shift)) scale)^2
    double (*step2)(const R* a, const R* b, const R* shift, Size d, double scale);
    // sum of (c - o) (2 (s - weight o) - weight (c - o)), all scaled, with s = high + low; low may
    // be null
    double (*explained)(const R* centre, const double* high, const double* low,
                        const double* origin, Size d, double weight, double scale,
                        double sum_scale);
    // the same of vectors that list n features and are 0 elsewhere, about 0
    SquareSum (*listed_square_sum)(const std::uint32_t* feature, const R* x, Size n, double scale);
    double (*listed_step2)(const std::uint32_t* feature, const R* a, const R* b, Size n,
                           double scale);
    double (*listed_explained)(const std::uint32_t* feature, const R* centre, const double* high,
                               const double* low, Size n, double weight, double scale,
                               double sum_scale);
    // listed_explained before, listed_step2 on the way and listed_square_sum behind it
    ListedWay (*listed_way)(const std::uint32_t* feature, const R* from, const R* to,
                            const double* high, const double* low, Size n, double weight,
                            double scale, double sum_scale);
    // is weight x scale nothing but its first words? magic[w * columns + f], or [w * columns] for a
    // single column
    bool (*fits_words)(const R* x, const double* magic, Size columns, int words, double weight,
                       double scale, Size d);
    // sum += factor x, in one word; or weight x scale cut into two words at magic[f * magic_step]
    void (*add_row)(double* sum, const R* x, double factor, Size d);
    void (*add_row2)(double* high, double* low, const R* x, const double* magic, Size magic_step,
                     double weight, double scale, Size d);
    // to float32
    void (*to_singles)(const R* x, Size n, float* out);
    // (high + low) / (weight + weight_error) * back; low may be null
    void (*mean)(const double* high, const double* low, double weight, double weight_error,
                 double back, Size d, R* out);
};

// The best set of this CPU, or the one that EXACTMEANS_ISA names (std::invalid_argument if that is
// unknown or cannot run here).
template <class R>
const Kernels<R>& kernels();

// Names of the instruction sets that were compiled in and can run here, best first.
std::vector<std::string> usable_isas();
std::string active_isa();

}  // namespace exactmeans
