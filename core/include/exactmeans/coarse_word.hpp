// Values of two centres in a word of 16 bits (coarse.hpp).
//
// The low byte, moved up, is the value of one of them; the whole word is that of the other, whose
// byte is chosen with the low one in mind. So neither has to be cut out. Another word, `fine`,
// has what is left of either, rounded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace exactmeans {

struct CoarseWord {
    // The value of the one or the other, 2^8 parts to a step.
    static int parts(const std::int8_t* word, bool whole) {
        return whole ? word[1] * 0x100 + std::uint8_t(word[0]) : word[0] * 0x100;
    }

    // The value of the centre that has the low byte; the other's is `zero`, as near as can be.
    static void put_low(std::int8_t* word, std::int8_t* fine, float steps, float zero) {
        word[0] = std::int8_t(std::lrint(steps));
        fine[0] = rest(steps, parts(word, false));
        put_high(word, fine, zero);
    }
    // That of the other.
    static void put_high(std::int8_t* word, std::int8_t* fine, float steps) {
        word[1] = std::int8_t(std::lrint(steps - float(std::uint8_t(word[0])) * 0x1p-8f));
        fine[1] = rest(steps, parts(word, true));
    }

private:
    static std::int8_t rest(float steps, int parts) {
        return std::int8_t(std::clamp(int(std::lrint(steps * 0x1p8f)) - parts, -128, 127));
    }
};

}  // namespace exactmeans
