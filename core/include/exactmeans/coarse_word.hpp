// Values of two centres in a word of 16 bits (coarse.hpp).
//
// The low byte, moved up, is the value of one of them; the whole word is that of the other, whose
// byte is chosen with the low one in mind. So neither has to be cut out. Another word, `fine`,
// has what is left of either.
#pragma once

#include <cstdint>

namespace exactmeans {

// Values are counted in parts, 2^8 to a step, from -127 to 127 steps.
struct CoarseWord {
    // What the first look sees of the one or the other.
    static int seen(const std::int8_t* word, bool whole) {
        return whole ? word[1] * 0x100 + std::uint8_t(word[0]) : word[0] * 0x100;
    }
    // The value itself.
    static int value(const std::int8_t* word, const std::int8_t* fine, bool whole) {
        return seen(word, whole) + fine[whole];
    }

    // The value of the centre that has the low byte; the other's is `zero`.
    static void put_low(std::int8_t* word, std::int8_t* fine, int value, int zero) {
        word[0] = nearest(value);
        fine[0] = std::int8_t(value - seen(word, false));
        put_high(word, fine, zero);
    }
    // That of the other.
    static void put_high(std::int8_t* word, std::int8_t* fine, int value) {
        word[1] = nearest(value - std::uint8_t(word[0]));
        fine[1] = std::int8_t(value - seen(word, true));
    }

private:
    // What is left is from -128 to 127.
    static std::int8_t nearest(int parts) { return std::int8_t((parts + 0x80) >> 8); }
};

}  // namespace exactmeans
