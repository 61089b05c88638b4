// The exact sum of any number of doubles, in any order: a long accumulator (U. Kulisch) of 32-bit
// digits in 64-bit words. So totals over rows (inertia, scatter, potentials) do not depend on
// threads and blocks.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace exactmeans {

class ExactSum {
public:
    // Digit t has weight 2^(32 t + lowest_exponent); doubles span 2^-1074 to 2^1024.
    static constexpr int lowest_exponent = -1088;
    static constexpr int digits = 68;

    // Infinity and NaN make the total infinite.
    void add(double value) {
        const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
        const int biased = int(bits >> 52) & 0x7ff;
        if ((bits << 1) == 0) return;
        // Finite terms cannot cancel this: their sums stay below the topmost digit.
        if (biased == 0x7ff) {
            word_[digits - 1] += (bits >> 63) ? -infinite : infinite;
            return;
        }
        std::uint64_t mantissa = bits & 0xfffffffffffffULL;
        if (biased) mantissa |= 1ULL << 52;
        const int position = (biased ? biased : 1) - 1075 - lowest_exponent;
        const int digit = position >> 5, offset = position & 31;
        // 53 bits shifted by up to 31 span three digits.
        const std::uint64_t low = mantissa << offset;
        const std::uint64_t high = offset ? mantissa >> (64 - offset) : 0;
        const std::int64_t sign = (bits >> 63) ? -1 : 1;
        word_[std::size_t(digit)] += sign * std::int64_t(low & 0xffffffffULL);
        word_[std::size_t(digit + 1)] += sign * std::int64_t(low >> 32);
        word_[std::size_t(digit + 2)] += sign * std::int64_t(high);
        // Each addition changes a word by less than 2^32, so 2^30 of them cannot overflow it.
        if (++pending_ == (1 << 30)) carry();
    }

    void add(const ExactSum& other) {
        ExactSum right = other;
        right.carry();
        carry();
        for (std::size_t t = 0; t < digits; ++t) word_[t] += right.word_[t];
        carry();
    }

    // The total, rounded to double from about 100 leading bits.
    double value() const {
        ExactSum sum = *this;
        sum.carry();
        // The topmost digit holds the sign and its weight exceeds the range of double, so negative
        // totals are negated first.
        const bool negative = sum.word_[digits - 1] < 0;
        if (negative) {
            for (std::int64_t& word : sum.word_) word = -word;
            sum.carry();
        }
        double high = 0, low = 0;
        for (int t = digits - 1; t >= 0; --t) {
            const double part =
                std::ldexp(double(sum.word_[std::size_t(t)]), 32 * t + lowest_exponent);
            const double total = high + part;
            low += part - (total - high);
            high = total;
        }
        if (std::isinf(high)) low = 0;
        return negative ? -(high + low) : high + low;
    }

    const std::array<std::int64_t, digits>& words() const { return word_; }
    std::array<std::int64_t, digits>& words() { return word_; }

private:
    // Added to the topmost digit for an infinite term: 2^40 finite terms stay below it, and 2^40
    // infinite terms do not overflow.
    static constexpr std::int64_t infinite = std::int64_t(1) << 22;

    // Normalises every digit but the topmost to [0, 2^32), so that equal totals have equal digits.
    void carry() {
        std::int64_t over = 0;
        for (std::size_t t = 0; t + 1 < digits; ++t) {
            const std::int64_t sum = word_[t] + over;
            over = sum >> 32;
            word_[t] = sum & 0xffffffffLL;
        }
        word_[digits - 1] += over;
        pending_ = 0;
    }

    std::array<std::int64_t, digits> word_{};
    int pending_ = 0;
};

}  // namespace exactmeans
