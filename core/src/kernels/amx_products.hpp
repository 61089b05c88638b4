// Products of 8-bit codes by tile registers of 16 rows of 64 bytes. One instruction multiplies the
// signed codes of 16 rows by the unsigned codes of 16 centres, 64 features at a time; a unit of
// CodedCentres is laid out as that instruction reads it.
#pragma once

#include <cstdint>

#include "exactmeans/kernels/integer_products.hpp"

namespace exactmeans {

// The shapes of the eight tile registers, as the LDTILECFG instruction reads them.
struct TileShapes {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

// The use of the eight registers: first the sums of up to four units, then codes. The last groups
// of four features, if they do not fill a register, have registers of their own, because a change
// of shapes would clear all registers.
inline constexpr int tile_of_rows = 4, tile_of_centres = 5, last_tile_of_rows = 6,
                     last_tile_of_centres = 7;
inline constexpr Size tile_depth = 16;  // groups of four features in a register

inline TileShapes tile_shapes(Size rows, Size depth) {
    TileShapes out;
    const auto set = [&](int tile, Size n, Size bytes) {
        out.rows[tile] = std::uint8_t(n);
        out.row_bytes[tile] = std::uint16_t(bytes);
    };
    for (int u = 0; u < int(CodedCentres::most_units); ++u) set(u, rows, 64);
    set(tile_of_rows, rows, 64);
    set(tile_of_centres, tile_depth, 64);
    if (const Size rest = depth % tile_depth) {
        set(last_tile_of_rows, rows, 4 * rest);
        set(last_tile_of_centres, rest, 64);
    }
    return out;
}

// T has the instructions: configure(shapes), load<tile>(from, stride), store<tile>(to, stride),
// multiply<sums, rows, centres>() and release().
template <class T>
void tile_products(const CodeRows& rows, const std::int32_t* start, const CodedCentres& centres,
                   Size unit, Size units, std::int32_t* out) {
    static_assert(CodedCentres::unit == 16 && CodedCentres::most_units == 4);
    const Size depth = centres.depth, whole = depth / tile_depth, width = units * 16;
    const auto for_units = [&](auto body) {
        body.template operator()<0>();
        if (units > 1) body.template operator()<1>();
        if (units > 2) body.template operator()<2>();
        if (units > 3) body.template operator()<3>();
    };
    for (Size i = 0; i < rows.n; i += 16) {
        const Size some = rows.n - i < 16 ? rows.n - i : 16;
        T::configure(tile_shapes(some, depth));
        std::int32_t* const sums = out + i * width;
        for (Size r = 0; r < some; ++r)
            for (Size l = 0; l < width; ++l) sums[r * width + l] = start[i + r];
        for_units([&]<int U>() { T::template load<U>(sums + U * 16, width * 4); });
        const std::int8_t* const codes = rows.codes + i * rows.pitch;
        for (Size g = 0; g < whole; ++g) {
            T::template load<tile_of_rows>(codes + g * 64, rows.pitch);
            for_units([&]<int U>() {
                T::template load<tile_of_centres>(centres.of_unit(unit + U) + g * 1024, 64);
                T::template multiply<U, tile_of_rows, tile_of_centres>();
            });
        }
        if (depth % tile_depth) {
            T::template load<last_tile_of_rows>(codes + whole * 64, rows.pitch);
            for_units([&]<int U>() {
                T::template load<last_tile_of_centres>(centres.of_unit(unit + U) + whole * 1024,
                                                       64);
                T::template multiply<U, last_tile_of_rows, last_tile_of_centres>();
            });
        }
        for_units([&]<int U>() { T::template store<U>(sums + U * 16, width * 4); });
    }
    T::release();
}

}  // namespace exactmeans
