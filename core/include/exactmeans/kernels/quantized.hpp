// Kernels of 8-bit scores of CSR rows, and of bounds that follow moving centres: the integer and
// float32 arithmetic of filter/ and assign/sparse/. docs/proofs/ derives the errors.
#pragma once

#include "exactmeans/kernels/panels.hpp"

namespace exactmeans {

// 8-bit codes of the centres (filter/quantized_centres.hpp), in panels of units of 64 places. Per
// feature, a unit is one cache line of 32 16-bit words. The low byte of word l is the code of place
// l; the whole word, in units of 2^-8 of the scale, is the value of place l + 32. If there is only
// one panel, its quarters are groups of places, and the kernels keep the lowest score of each
// group. Places without a centre have score offset infinity.
struct QuantizedPanels {
    static constexpr Size unit = 64, most_units = 3, most_groups = 4;
    const std::int8_t* values = nullptr;
    const float* score_offset = nullptr;
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

    // Score offsets, which are not negative, are stored rounded down, so that 8-bit scores bound
    // exact ones from below. Those that might be infinite in float32 are stored as
    // `largest_offset`; then no upper bound of a score holds.
    static constexpr double largest_offset = 0x1p127;
    static float stored_offset(double offset) {
        return offset < largest_offset ? float(offset * (1 - 0x1p-20)) : float(largest_offset);
    }
    // The most by which the stored offset of a place is too low.
    double score_offset_error(Size place) const { return double(score_offset[place]) * 0x1p-18; }

    // With several panels all places form one group.
    Size groups() const { return count() == 1 ? most_groups : 1; }
    // The first place of group g; for g = groups(), the end of the last one.
    Size group(Size g) const { return g * places() / groups(); }
};

// Vector loads and prefetches read up to this many entries past the end of a row. Callers pad the
// last row.
inline constexpr Size readable_past_row = 16;
// Entries between a prefetch and the use of its data: about the latency of L3, measured on Zen 3 (8
// to 32 are within noise).
inline constexpr Size prefetch_entries = 16;
static_assert(prefetch_entries <= readable_past_row);

// A quantised CSR row: integers whose magnitudes add up to less than 2^15. Its score with a centre
// is the score offset plus `unit` times the sum of products with codes, each product divided by
// 2^15 and rounded.
struct QuantizedRow {
    const std::uint32_t* index;  // padded by readable_past_row
    std::int16_t* value;
    Size nonzeros;
    float unit;
    float sum, size;  // of entries times the scales of their features; size: of their magnitudes

    // Rows of larger `size`, or with more nonzeros, are stored as zeros with unit 0.
    static constexpr float largest = 0x1p100f;
    static constexpr Size longest = 8192;
};

// Sums over a row of x+ a + x- b (fall) and of x+ b + x- a (rise), with x+ and x- the positive and
// negative parts of the entries, and a and b per feature (assign/sparse/delta_bounds.hpp).
struct DeltaSums {
    float fall, rise;
};
// Per feature, a of every group and then b of every group, as the upper halves of float32 values.
struct GroupDeltaTable {
    std::uint16_t half[2 * QuantizedPanels::most_groups];
};
// The change of the centres since the last pass (assign/sparse/grouped_delta_bounds.hpp).
struct GroupDeltas {
    struct Centre {
        float rise;          // of its score offset
        std::int32_t group;  // negative: the centre did not move
    };
    const GroupDeltaTable* table;  // by feature
    const Centre* centres;
    float fall[QuantizedPanels::most_groups];   // largest fall of a score offset, per group
    float extra[QuantizedPanels::most_groups];  // rounding of score offsets, per group
    float tiny;                                 // underflow per entry of a row
};
// Upper bound of the score of the assigned centre, and per group a lower bound of all other scores.
struct RowBounds {
    float high, low[QuantizedPanels::most_groups];
};

// Memory that the caller reads after a call; the kernel prefetches a slice of it per row.
struct PrefetchHint {
    struct Range {
        const void* begin = nullptr;
        Size bytes = 0;
    };
    Range ranges[2];
};

struct QuantizedKernels {
    // Quantises rows for centres with these scales per feature. The caller sets index, value and
    // nonzeros of `out`. If rows are contiguous, the kernel may write up to one vector past the
    // last. `scaled` is a buffer of the length of the longest row plus one vector.
    void (*quantize_rows)(const PackedCsrRow<float>* rows, Size n, const float* scale,
                          float* scaled, QuantizedRow* out);
    // Per group: the lowest score, its place, and the second lowest score; those of group g and row
    // i are at [g * n + i]. With several panels, lows[p * n + i] is the lowest score of panel p.
    void (*nearest)(const QuantizedRow* rows, Size n, const QuantizedPanels& centres,
                    const Nearest<float>& out, float* lows, const PrefetchHint& next);
    // Lists the places of panel p whose scores do not exceed the limit (`list` has room for the
    // whole panel) and returns their number. Lowers others[g] to the lowest of all other scores of
    // group g.
    Size (*places_below)(const QuantizedRow& row, const QuantizedPanels& centres, Size p,
                         float limit, std::int32_t* list, float* others);
    // Sums a table of centre changes over rows. Each 32-bit word of the table is a as a float32;
    // the low half of the word, shifted up, is b.
    void (*sum_deltas)(const PackedCsrRow<float>* rows, Size n, const float* table, DeltaSums* out);
    // Updates the bounds of rows with these labels for the change of the centres. `any_negative`:
    // whether a row may have negative entries. Lists the rows whose bounds cross and returns their
    // number.
    Size (*update_bounds)(const PackedCsrRow<float>* rows, Size n, bool any_negative,
                          const GroupDeltas& deltas, const std::int32_t* labels, RowBounds* bounds,
                          std::int32_t* crossed);
    // Dot products of rows and one centre, given by feature, summed in another order than the
    // canonical one. Reads up to readable_past_row entries past a row.
    void (*reordered_products)(const PackedCsrRow<float>* rows, Size n, const float* centre,
                               float* out);
};

const QuantizedKernels& quantized_kernels();

}  // namespace exactmeans
