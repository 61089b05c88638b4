// Values of two centres in a word of 16 bits (filter/quantized_centres.hpp).
//
// The low byte, moved up, is the value of one of them; the whole word is that of the other, whose
// byte is chosen with the low one in mind. So neither has to be cut out.
#pragma once

#include <cstdint>

namespace exactmeans {

// Values are counted in parts, 2^8 to a step, from -127 to 127 steps. What is seen of them is not
// more than half a step off.
struct CodePair {
    // The value of the centre that has the low byte; the other's is `zero`.
    static void put_low(std::int8_t* word, int value, int zero) {
        word[0] = nearest(value);
        put_high(word, zero);
    }
    // That of the other.
    static void put_high(std::int8_t* word, int value) {
        word[1] = nearest(value - std::uint8_t(word[0]));
    }

private:
    static std::int8_t nearest(int parts) { return std::int8_t((parts + 0x80) >> 8); }
};

}  // namespace exactmeans
