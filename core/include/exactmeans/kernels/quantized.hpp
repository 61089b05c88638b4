// CSR rows against centres of 8 bits, and bounds that follow moving centres: the integer and
// float32 arithmetic behind filter/ and assign/sparse/. docs/numerics.md derives the errors.
#pragma once

#include "exactmeans/kernels/panels.hpp"

namespace exactmeans {

// Centres of 8 bits (filter/quantized_centres.hpp), cut into panels as wider ones are, but in units
// of 64 centres: one cache line of 16-bit words per feature. The low byte of word l is the code of
// place l of the unit; the whole word, in 2^-8 of the scale, is that of place l + 32. If there is
// one panel only, its quarters are groups of places, and kernels keep the lowest score of each.
// Places without a centre start at infinity.
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

    // Several panels are one group.
    Size groups() const { return count() == 1 ? most_groups : 1; }
    // The first place of a group; behind the last group, its end.
    Size group(Size g) const { return g * places() / groups(); }
};

// Kernels read up to this many entries past the end of a row: vectors may end behind it, and the
// prefetch looks at later entries. Callers pad the last row.
inline constexpr Size readable_past_row = 16;
// Entries between a prefetch and the use of what it fetches: about the latency of L3, measured on
// Zen 3 (8 to 32 are within noise).
inline constexpr Size prefetch_entries = 16;
static_assert(prefetch_entries <= readable_past_row);

// A CSR row for them: integers whose magnitudes add up to less than 2^15. The sum of products with
// codes, each divided by 2^15 and rounded, times `unit` is its score without the start. `sum` is
// that of its entries times scales, and `size` that of their magnitudes.
struct QuantizedRow {
    const std::uint32_t* index;  // readable_past_row more
    std::int16_t* value;
    Size nonzeros;
    float unit, sum, size;

    // Rows with larger entries or more of them hold zeros only and have unit 0.
    static constexpr float largest = 0x1p100f;
    static constexpr Size longest = 8192;
};

// Sums over a row of x+ a + x- b, and of x+ b + x- a, for a and b by feature
// (assign/sparse/delta_bounds.hpp).
struct DeltaSums {
    float fall, rise;
};
// The same for each group of centres: by feature a of every group, then b, as upper halves of
// float32s.
struct GroupDeltaTable {
    std::uint16_t half[2 * QuantizedPanels::most_groups];
};
// How centres moved (assign/sparse/grouped_delta_bounds.hpp): by feature; by how much else scores
// of each group may have fallen; rounding of either; underflow of each entry; and by centre, how
// much the start of its scores rose, and its group, negative if it did not move.
struct GroupDeltas {
    struct Centre {
        float rise;
        std::int32_t group;
    };
    const GroupDeltaTable* table;
    const Centre* centres;
    float fall[QuantizedPanels::most_groups], extra[QuantizedPanels::most_groups], tiny;
};
// Upper bound of the score of a row's own centre, and lower bounds of all others by group.
struct RowBounds {
    float high, low[QuantizedPanels::most_groups];
};

// Memory that the caller reads next; the kernel prefetches a slice of it per row.
struct PrefetchHint {
    struct Range {
        const void* begin = nullptr;
        Size bytes = 0;
    };
    Range ranges[2];
};

struct QuantizedKernels {
    // Quantises rows for centres with these scales by feature. `out` has all but its last three
    // members; where rows are contiguous, one vector more may be written. `sized` is a buffer for
    // the longest row and a vector.
    void (*quantize_rows)(const PackedCsrRow<float>* rows, Size n, const float* scale, float* sized,
                          QuantizedRow* out);
    // The lowest score of each group, its place, and the second lowest: those of group g and row i
    // stand at [g * n + i]; lows[p * n + i] is the lowest score of panel p, if there are several.
    void (*nearest)(const QuantizedRow* rows, Size n, const QuantizedPanels& centres,
                    const Nearest<float>& out, float* lows, const PrefetchHint& next);
    // Lists the places of a panel whose scores are not above a limit, at most as many as it has;
    // returns their number, and lowers others[g] to the lowest of all other scores of group g.
    Size (*places_below)(const QuantizedRow& row, const QuantizedPanels& centres, Size p,
                         float limit, std::int32_t* list, float* others);
    // Sums a table of centre movement over rows. The words of the table are a, as bits of a
    // float32, whose low halves, moved up, are b.
    void (*reach)(const PackedCsrRow<float>* rows, Size n, const float* table, DeltaSums* out);
    // Moves the bounds of rows with these labels along with the centres; `any_negative`: may a row
    // have an entry below 0? Lists the rows whose bounds cross, and returns their number.
    Size (*update_bounds)(const PackedCsrRow<float>* rows, Size n, bool any_negative,
                          const GroupDeltas& shifts, const std::int32_t* labels, RowBounds* bounds,
                          std::int32_t* crossed);
    // Products of rows and one centre, its values by feature, in an order of its own;
    // readable_past_row entries behind a row may be read.
    void (*reordered_products)(const PackedCsrRow<float>* rows, Size n, const float* centre,
                               float* out);
};

const QuantizedKernels& quantized_kernels();

}  // namespace exactmeans
