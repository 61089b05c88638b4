#include "exactmeans/numerics/exact_sum.hpp"

#include <algorithm>
#include <limits>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr double largest = std::numeric_limits<double>::max();

ExactSum sum_of(const std::vector<double>& values) {
    ExactSum sum;
    for (const double value : values) sum.add(value);
    return sum;
}

// Merging normalises, so equal totals have equal words.
std::array<std::int64_t, ExactSum::digits> canonical(const ExactSum& sum) {
    ExactSum out;
    out.add(sum);
    return out.words();
}

struct Multiples {
    std::vector<double> values;
    Int128 total = 0;  // in units of 2^exponent
};

// Integers of up to 53 bits, shifted by up to 40 places: exact in 128 bits, never in a double.
Multiples random_multiples(Random& random, Size count, int exponent, bool negatives) {
    Multiples out;
    for (Size t = 0; t < count; ++t) {
        auto integer = std::int64_t(random.bits() >> random.between(11, 63));
        if (negatives && random.coin()) integer = -integer;
        const int shift = int(random.below(41));
        out.values.push_back(std::ldexp(double(integer), shift + exponent));
        out.total += Int128(integer) * (Int128(1) << shift);
    }
    return out;
}

}  // namespace

TEST(sums_of_multiples_are_correctly_rounded) {
    Random random(1);
    for (const int exponent : {-1074, -1060, -1030, -300, -53, 0, 17, 500, 880}) {
        for (const bool negatives : {false, true}) {
            for (const Size count : {0, 1, 2, 3, 10, 1000}) {
                const Multiples m = random_multiples(random, count, exponent, negatives);
                CHECK_EQ(sum_of(m.values).value(), std::ldexp(double(m.total), exponent));
            }
        }
    }
}

TEST(a_single_double_is_returned_unchanged) {
    Random random(2);
    for (int repeat = 0; repeat < 20000; ++repeat) {
        const double value = std::bit_cast<double>(random.bits());
        if (!std::isfinite(value)) continue;
        CHECK_EQ(sum_of({value}).value(), value);
    }
    for (const double value : {0.0, -0.0, 0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp-1023, 0x1p-1022,
                               largest, -largest}) {
        CHECK_EQ(sum_of({value}).value(), value);
    }
}

TEST(order_and_merging_change_no_bit) {
    Random random(3);
    const Multiples m = random_multiples(random, 3000, -200, true);
    const ExactSum wanted = sum_of(m.values);
    std::vector<double> values = m.values;
    for (int repeat = 0; repeat < 20; ++repeat) {
        for (std::size_t t = values.size(); t > 1; --t) {
            std::swap(values[t - 1], values[std::size_t(random.below(Size(t)))]);
        }
        std::vector<ExactSum> parts(std::size_t(1 + repeat));
        for (const double value : values)
            parts[std::size_t(random.below(Size(parts.size())))].add(value);
        // Every other time merged as a tree instead of a chain.
        while (parts.size() > 1) {
            const std::size_t into =
                repeat % 2 ? std::size_t(random.below(Size(parts.size()) - 1)) : 0;
            parts[into].add(parts.back());
            parts.pop_back();
        }
        CHECK(canonical(parts[0]) == canonical(wanted));
        CHECK(same_bits(parts[0].value(), wanted.value()));
    }
}

TEST(cancellation_is_exact) {
    CHECK_EQ(sum_of({1e300, 1, -1e300}).value(), 1.0);
    CHECK_EQ(sum_of({largest, 0x1p-1074, -largest}).value(), 0x1p-1074);
    CHECK_EQ(sum_of({largest, largest, -largest}).value(), largest);
    CHECK_EQ(sum_of({-largest, -largest, largest, largest, -3}).value(), -3.0);
    CHECK_EQ(sum_of({1, -0x1p-1074, -1}).value(), -0x1p-1074);
    Random random(4);
    std::vector<double> values;
    for (int t = 0; t < 5000; ++t) {
        const double value = std::bit_cast<double>(random.bits());
        if (std::isfinite(value)) values.push_back(value);
    }
    ExactSum sum = sum_of(values);
    sum.add(42.5);
    std::reverse(values.begin(), values.end());
    for (const double value : values) sum.add(-value);
    CHECK_EQ(sum.value(), 42.5);
    CHECK(canonical(sum) == canonical(sum_of({42.5})));
    sum.add(-42.5);
    CHECK(canonical(sum) == canonical(ExactSum()));
    CHECK_EQ(sum.value(), 0.0);
}

TEST(ties_are_broken_by_lower_digits) {
    for (const double sign : {1.0, -1.0}) {
        CHECK_EQ(sum_of({sign, sign * 0x1p-53}).value(), sign);
        CHECK_EQ(sum_of({sign, sign * 0x1p-53, sign * 0x1p-100}).value(), sign * (1 + 0x1p-52));
        CHECK_EQ(sum_of({sign, sign * 0x1p-53, sign * -0x1p-100}).value(), sign);
        CHECK_EQ(sum_of({sign, sign * 0x1p-52, sign * 0x1p-53}).value(), sign * (1 + 0x1p-51));
        CHECK_EQ(sum_of({sign * 0x1p60, sign * 0x1p7, sign * -0x1p-20}).value(), sign * 0x1p60);
        CHECK_EQ(sum_of({sign * 0x1p60, sign * 0x1p7, sign * 0x1p-20}).value(),
                 sign * (0x1p60 + 0x1p8));
    }
}

TEST(a_sum_can_be_added_to_itself_many_times) {
    for (const double value : {0x1.fffffffffffffp-1000, -0x1.fffffffffffffp-1000, -0x1p-1074}) {
        ExactSum sum = sum_of({value});
        double wanted = value;
        for (int t = 0; t < 1500; ++t) {
            sum.add(sum);
            wanted *= 2;
            CHECK(same_bits(sum.value(), wanted));
        }
    }
}

TEST(digits_after_2_to_the_30_additions_do_not_overflow) {
    // 2^30 times the double whose three digits are maximal.
    constexpr std::int64_t full = (std::int64_t(1) << 62) - (std::int64_t(1) << 30);
    for (const std::int64_t sign : {1, -1}) {
        ExactSum sum;
        for (const std::size_t t : {30, 31, 32}) sum.words()[t] = sign * full;
        const double unit = std::ldexp(1.0, 32 * 30 + ExactSum::lowest_exponent);
        // full (1 + 2^32 + 2^64) = 2^30 (2^96 - 1), just below 2^126.
        CHECK_EQ(sum.value(), double(sign) * 0x1p126 * unit);
        sum.add(double(sign) * 0x1p30 * unit);
        CHECK_EQ(sum.value(), double(sign) * 0x1p126 * unit);
        sum.add(double(-sign) * 0x1p126 * unit);
        CHECK_EQ(sum.value(), 0.0);
        ExactSum twice;
        twice.add(sum);
        twice.add(sum);
        CHECK_EQ(twice.value(), 0.0);
    }
}

TEST(totals_beyond_the_range_are_infinite_until_they_cancel) {
    const double inf = std::numeric_limits<double>::infinity();
    ExactSum sum = sum_of({largest, largest, largest});
    CHECK_EQ(sum.value(), inf);
    CHECK_EQ(sum_of({-largest, -largest}).value(), -inf);
    sum.add(-largest);
    sum.add(-largest);
    CHECK_EQ(sum.value(), largest);
}

TEST(infinite_terms_make_the_total_infinite) {
    const double inf = std::numeric_limits<double>::infinity();
    ExactSum sum = sum_of({1.0, inf, -largest, 3.0});
    CHECK_EQ(sum.value(), inf);
    ExactSum all = sum_of({-largest, -largest});
    all.add(sum);
    CHECK_EQ(all.value(), inf);
    CHECK_EQ(sum_of({largest, -inf}).value(), -inf);
    CHECK_EQ(sum_of({std::numeric_limits<double>::quiet_NaN()}).value(), inf);
}

TEST(many_additions_in_a_row) {
    ExactSum sum;
    constexpr std::int64_t count = 3'000'000;
    for (std::int64_t t = 0; t < count; ++t) sum.add(t % 3 ? 0.1 : -0.1);
    // A third more of one sign: exactly count / 3 times the double nearest to 0.1.
    CHECK_EQ(sum.value(), 0.1 * double(count / 3));
}
