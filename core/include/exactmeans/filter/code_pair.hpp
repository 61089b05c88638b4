// 8-bit codes of two centres in one 16-bit word (filter/quantized_centres.hpp).
//
// A 16-bit code is 2^8 times the value in units of the scale. The low byte of the word is the 8-bit
// code nearest to the 16-bit code of one centre. The high byte is chosen so that the whole word is
// as near as possible to the 16-bit code of the other centre. So kernels multiply whole words,
// without masking the low byte out.
#pragma once

#include <cstdint>

namespace exactmeans {

// Read in either way, a word is at most half a unit of the scale off.
struct CodePair {
    // Stores the code of the first centre in the low byte; sets the second centre to `zero`.
    static void put_low(std::int8_t* word, int code16, int zero) {
        word[0] = nearest(code16);
        put_high(word, zero);
    }
    // Stores the code of the second centre in the high byte, given the low one.
    static void put_high(std::int8_t* word, int code16) {
        word[1] = nearest(code16 - std::uint8_t(word[0]));
    }

private:
    static std::int8_t nearest(int code16) { return std::int8_t((code16 + 0x80) >> 8); }
};

}  // namespace exactmeans
