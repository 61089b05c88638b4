// Products of 8-bit codes by AMX. dispatch.cpp requests Linux's permission to use it.
#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>

#include "amx_products.hpp"
#include "isa.hpp"

namespace exactmeans {
namespace {

// The intrinsics are macros that take literal register numbers.
struct AmxTiles {
    static void configure(const TileShapes& shapes) { _tile_loadconfig(&shapes); }
    static void release() { _tile_release(); }

    template <int Tile>
    static void load(const void* from, Size stride) {
        if constexpr (Tile == 0) _tile_loadd(0, from, stride);
        if constexpr (Tile == 1) _tile_loadd(1, from, stride);
        if constexpr (Tile == 2) _tile_loadd(2, from, stride);
        if constexpr (Tile == 3) _tile_loadd(3, from, stride);
        if constexpr (Tile == 4) _tile_loadd(4, from, stride);
        if constexpr (Tile == 5) _tile_loadd(5, from, stride);
        if constexpr (Tile == 6) _tile_loadd(6, from, stride);
        if constexpr (Tile == 7) _tile_loadd(7, from, stride);
    }
    template <int Tile>
    static void store(void* to, Size stride) {
        if constexpr (Tile == 0) _tile_stored(0, to, stride);
        if constexpr (Tile == 1) _tile_stored(1, to, stride);
        if constexpr (Tile == 2) _tile_stored(2, to, stride);
        if constexpr (Tile == 3) _tile_stored(3, to, stride);
    }
    // Signed codes of rows times unsigned codes of centres.
    template <int Sums, int Rows, int Centres>
    static void multiply() {
        static_assert((Rows == 4 && Centres == 5) || (Rows == 6 && Centres == 7));
        if constexpr (Rows == 4) {
            if constexpr (Sums == 0) _tile_dpbsud(0, 4, 5);
            if constexpr (Sums == 1) _tile_dpbsud(1, 4, 5);
            if constexpr (Sums == 2) _tile_dpbsud(2, 4, 5);
            if constexpr (Sums == 3) _tile_dpbsud(3, 4, 5);
        } else {
            if constexpr (Sums == 0) _tile_dpbsud(0, 6, 7);
            if constexpr (Sums == 1) _tile_dpbsud(1, 6, 7);
            if constexpr (Sums == 2) _tile_dpbsud(2, 6, 7);
            if constexpr (Sums == 3) _tile_dpbsud(3, 6, 7);
        }
    }
};

}  // namespace

// The speed is an estimate; it has not been measured.
constinit const IntegerProducts products_amx{.name = "amx",
                                             .bias = 128,
                                             .speed = 12,
                                             .products = &tile_products<AmxTiles>,
                                             .pair_products = &pair_products_avx512vnni};

}  // namespace exactmeans

#endif
