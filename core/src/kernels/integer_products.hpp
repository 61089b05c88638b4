// Products of 8-bit codes with tiles T of an instruction set, and plain loops for any CPU.
#pragma once

#include <cstdint>

#include "exactmeans/kernels/integer_products.hpp"

namespace exactmeans {

// A tile T has
//     rows[units - 1]                     rows per tile, by units
//     run<Rows, Units>(codes, pitch, centres, depth, start, out)
//                                         products of Rows rows with Units units
// Remaining rows are taken two and one at a time.
template <class T, int Units>
void products_of_units(const CodeRows& rows, const std::int32_t* start, const std::int8_t* centres,
                       Size depth, std::int32_t* out) {
    constexpr int step = T::rows[Units - 1];
    Size i = 0;
    const auto run = [&]<int Rows>() {
        T::template run<Rows, Units>(rows.codes + i * rows.pitch, rows.pitch, centres, depth,
                                     start + i, out + i * Units * CodedCentres::unit);
        i += Rows;
    };
    while (i + step <= rows.n) run.template operator()<step>();
    while (i + 2 <= rows.n) run.template operator()<2>();
    while (i < rows.n) run.template operator()<1>();
}

template <class T>
void products(const CodeRows& rows, const std::int32_t* start, const CodedCentres& centres,
              Size unit, Size units, std::int32_t* out) {
    static_assert(CodedCentres::most_units == 4);
    const std::int8_t* const codes = centres.of_unit(unit);
    switch (units) {
        case 1:
            return products_of_units<T, 1>(rows, start, codes, centres.depth, out);
        case 2:
            return products_of_units<T, 2>(rows, start, codes, centres.depth, out);
        case 3:
            return products_of_units<T, 3>(rows, start, codes, centres.depth, out);
        default:
            return products_of_units<T, 4>(rows, start, codes, centres.depth, out);
    }
}

namespace {

struct PlainTile {
    static constexpr int rows[] = {1, 1, 1, 1};

    template <int Rows, int Units>
    static void run(const std::int8_t* codes, Size pitch, const std::int8_t* centres, Size depth,
                    const std::int32_t* start, std::int32_t* out) {
        constexpr int unit = int(CodedCentres::unit);
        for (int r = 0; r < Rows; ++r)
            for (int u = 0; u < Units; ++u) {
                std::int32_t* const own = out + (r * Units + u) * unit;
                for (int l = 0; l < unit; ++l) own[l] = start[r];
                for (Size t = 0; t < depth; ++t) {
                    const std::int8_t *x = codes + r * pitch + 4 * t,
                                      *c = centres + (u * depth + t) * unit * 4;
                    for (int l = 0; l < unit; ++l)
                        own[l] += x[0] * c[4 * l] + x[1] * c[4 * l + 1] + x[2] * c[4 * l + 2] +
                                  x[3] * c[4 * l + 3];
                }
            }
    }
};

inline void plain_pair_products(const CodeRows& rows, const CodesByCentre& centres,
                                const std::int32_t* centre, std::int32_t* out) {
    for (Size i = 0; i < rows.n; ++i) {
        const std::int8_t *x = rows.codes + i * rows.pitch,
                          *c = centres.codes + Size(centre[i]) * centres.pitch;
        std::int32_t sum = 0;
        for (Size f = 0; f < rows.pitch; ++f) sum += x[f] * c[f];
        out[i] = sum;
    }
}

[[maybe_unused]] constexpr IntegerProducts plain_products{.name = "plain",
                                                          .bias = 0,
                                                          .speed = 1,
                                                          .products = &products<PlainTile>,
                                                          .pair_products = &plain_pair_products};

}  // namespace
}  // namespace exactmeans
