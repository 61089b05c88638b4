// Kernels of the 8-bit filter for dense rows (filter/dense_filter.hpp): exact products of 8-bit
// codes, and the candidates that bounds by these products do not exclude.
// docs/proofs/dense_integer_filter.md derives the bounds.
#pragma once

#include <cmath>
#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// A vector v as codes, whole numbers q from -127 to 127, times one scale s. All bounds are in units
// of s.
struct CodedVector {
    float inverse;     // 1 / s
    float residual;    // at least |v - s q| / s
    float norm;        // at least |q|
    float rounding;    // of a row: see dense_codes.hpp; infinite if the codes are not valid
    std::int32_t sum;  // of the codes
};

// Codes of the centres in units of 16 centres: [unit][four features][centre][feature], each plus
// the bias of the kernels. The lower bound of the score of a row and centre j is
//     offset / s - length * residual + minus_scale * (product of the codes + margin)
// with s, residual and margin of the row, and all else of the centre. `width` and `length` also
// give the upper bound (proof page). Places without a centre have an infinite offset.
struct CodedCentres {
    static constexpr Size unit = 16, most_units = 4;  // units per call
    const std::int8_t* codes = nullptr;
    const float *offset = nullptr, *minus_scale = nullptr, *length = nullptr, *width = nullptr;
    Size k = 0;
    Size depth = 0;  // groups of four features

    Size units() const { return (k + unit - 1) / unit; }
    const std::int8_t* of_unit(Size u) const { return codes + u * depth * unit * 4; }
};

// The same codes centre by centre, without the bias, each centre padded by zeros to `pitch` bytes.
struct CodesByCentre {
    const std::int8_t* codes = nullptr;
    const std::int32_t* sum = nullptr;  // of the codes of each centre
    Size pitch = 0;

    static constexpr Size padding = 64;  // pitch is a multiple of it
};

// Codes of n rows, 4 * depth each, `pitch` bytes apart. Kernels read up to 64 bytes past the last
// row.
struct CodeRows {
    const std::int8_t* codes;
    Size pitch, n;
};

// Kernels of products of codes. The products are exact, so all instruction sets give the same.
struct IntegerProducts {
    const char* name;
    // Added to the codes of centres, because some instructions multiply unsigned by signed bytes.
    int bias;
    // Multiply-adds of codes in the time of one float32 multiply-add; 1: the filter does not pay.
    int speed;
    // out[i * units * 16 + lane] = start[i] + the product of row i and the biased codes at `lane`
    // of `units` units, the first of which is `unit`.
    void (*products)(const CodeRows& rows, const std::int32_t* start, const CodedCentres& centres,
                     Size unit, Size units, std::int32_t* out);
    // out[i] = the product of row i and centre[i]. May read up to 64 bytes past a row.
    void (*pair_products)(const CodeRows& rows, const CodesByCentre& centres,
                          const std::int32_t* centre, std::int32_t* out);
};

struct Candidate {
    std::int32_t centre;  // its place among the codes (filter/dense_centre_codes.hpp)
    float low;            // lower bound of its score, in units of the row's scale
};

// The candidates of the rows of a block, during a pass over all centres. A centre is a candidate of
// row i if the lower bound of its score does not exceed limit[i], the lowest upper bound so far. If
// a row has more than `most` candidates, its count becomes most + 1 and its limit minus infinity.
struct CandidateLists {
    static constexpr int most = 16;
    static constexpr Size tile = 24;  // rows whose products stay in L1
    const CodedVector* rows;
    const std::int32_t* margin;  // bounds the error from residuals of the centres, in products
    float* limit;                // infinite: no upper bound yet
    std::int32_t* count;
    Candidate* list;  // list[i * most + c]
    bool labelled;    // limits come from labels (limit_by) and are not lowered further
};

// The limit for a lowest upper bound: covers the rounding of two canonical scores and of its own
// arithmetic.
inline float limit_above(float upper, float rounding) {
    const float limit = upper + 2 * rounding;
    return limit + std::fabs(limit) * 0x1p-21f;
}

// Bounds of all scores of some rows: lower bounds at lows[i * pitch + place]. The centres are
// divided into `lanes` sets, by their lane; highs[i * lanes + l] is the lowest upper bound so far
// of set l.
struct ScoreBounds {
    static constexpr Size lanes = CodedCentres::most_units * CodedCentres::unit;
    const CodedVector* rows;
    const std::int32_t* margin;  // as in CandidateLists
    float* lows;
    Size pitch;
    float* highs;
};

struct FilterKernels {
    // Quantises d values, padded by zeros to a multiple of 64, into as many codes. The scale is the
    // largest magnitude / 127, but at least `least`. Sets `rounding` to 0, or to infinity if a
    // value is not finite.
    void (*quantize)(const float* values, Size d, float least, std::int8_t* codes,
                     CodedVector& out);
    // Lists the candidates among some units of centres, from the products of n rows with them
    // (IntegerProducts::products).
    void (*find_candidates)(const std::int32_t* products, Size n, const CodedCentres& centres,
                            Size unit, Size units, const CandidateLists& rows);
    // Lowers the limit of row i to the upper bound of its score with centre[i], from their product
    // (without margin).
    void (*limit_by)(const std::int32_t* products, const std::int32_t* centre, Size n,
                     const CodedCentres& centres, const CandidateLists& rows);
    // Bounds of all scores, from products like those of find_candidates.
    void (*bound_scores)(const std::int32_t* products, Size n, const CodedCentres& centres,
                         Size unit, Size units, const ScoreBounds& rows);
    // Lists the places with lows[place] <= limit; returns their number. n is a multiple of 16.
    Size (*places_below)(const float* lows, Size n, float limit, std::int32_t* out);
    // The lowest of n values; n is a multiple of 16.
    float (*lowest)(const float* values, Size n);
};

const IntegerProducts& integer_products();
const FilterKernels& filter_kernels();

}  // namespace exactmeans
