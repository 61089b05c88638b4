#include "exactmeans/numerics/bins.hpp"

#include <limits>

#include "check.hpp"
#include "exactmeans/numerics/exact_sum.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// The exponent of the lowest set bit.
int lowest_bit(double value) {
    int exponent;
    const double mantissa = std::frexp(value, &exponent);
    const auto integer = static_cast<std::uint64_t>(std::ldexp(std::fabs(mantissa), 53));
    return exponent - 53 + std::countr_zero(integer);
}

int ceil_log2(Size n) { return n <= 1 ? 0 : int(std::bit_width(std::uint64_t(n - 1))); }

// By the definition: bin w holds multiples of its unit, and n of them must fit 53 bits.
int bins_by_definition(double value, double bound, Size n) {
    if (value == 0) return 1;
    const int count = std::max(3, ceil_log2(n));
    int unit = std::ilogb(bound) + 1 + count - 53;
    int bins = 1;
    for (; lowest_bit(value) < unit; ++bins) unit += count - 54;
    return bins;
}

std::vector<double> split(const Bins& grid, double value, std::size_t column) {
    std::vector<double> parts;
    for (int w = 0; w + 1 < grid.bins(); ++w) {
        const double magic = grid.magic_row(w)[column];
        parts.push_back((value + magic) - magic);
        value -= parts.back();
    }
    parts.push_back(value);
    return parts;
}

double random_value(Random& random) {
    switch (random.below(4)) {
        case 0:
            return double(float(random.normal()));
        case 1:
            return random.normal() * std::ldexp(1.0, int(random.between(-80, 0)));
        case 2:
            return double(random.between(-5, 5));
        default:
            return random.normal();
    }
}

}  // namespace

TEST(bins_add_up_to_the_value_and_never_overflow_53_bits) {
    Random random(1);
    for (const Size n : {1, 7, 8, 9, 1000, 1 << 20}) {
        for (int repeat = 0; repeat < 50; ++repeat) {
            const Matrix<double> x(20, 3, [&] { return random_value(random); });
            std::vector<double> bounds(3);
            for (Size i = 0; i < x.n; ++i) {
                for (Size f = 0; f < 3; ++f) bounds[f] = std::max(bounds[f], std::fabs(x(i, f)));
            }
            if (repeat % 2) bounds = {std::max({bounds[0], bounds[1], bounds[2]})};
            Bins grid(bounds, n);
            CHECK_EQ(grid.per_column(), repeat % 2 == 0);
            grid.set_bins(bins_needed(x.rows(), grid, 0, x.n));
            for (Size i = 0; i < x.n; ++i) {
                for (Size f = 0; f < 3; ++f) {
                    const std::size_t column = grid.per_column() ? std::size_t(f) : 0;
                    const std::vector<double> parts = split(grid, x(i, f), column);
                    ExactSum total;
                    for (std::size_t w = 0; w < parts.size(); ++w) {
                        total.add(parts[w]);
                        int exponent;
                        std::frexp(grid.magic(column, int(w)), &exponent);
                        const int unit = exponent - 53;
                        if (parts[w] == 0) continue;
                        CHECK(lowest_bit(parts[w]) >= unit);
                        CHECK(std::fabs(parts[w]) * double(n) <= std::ldexp(1.0, unit + 53));
                    }
                    CHECK_EQ(total.value(), x(i, f));
                }
            }
        }
    }
}

TEST(number_of_bins_is_minimal) {
    Random random(2);
    for (int repeat = 0; repeat < 5000; ++repeat) {
        const Size n = Size(1) << random.below(30);
        const Size rows_counted = n + random.between(-1, 1);
        const double bound = std::ldexp(random.uniform(1, 2), int(random.between(-40, 40)));
        const double value = bound * random_value(random) / 8;
        if (std::fabs(value) > bound) continue;
        Matrix<double> x(1, 1);
        x(0, 0) = value;
        const Bins grid({bound}, rows_counted);
        CHECK_EQ(bins_needed(x.rows(), grid, 0, 1), bins_by_definition(value, bound, rows_counted));
    }
}

TEST(row_with_most_bins_decides) {
    Matrix<double> x(3, 2);
    x(0, 0) = 1;
    x(1, 1) = 0x1p-100;
    x(2, 0) = -0.5;
    const Bins shared({1.0}, 8), own({1.0, 0x1p-100}, 8);
    CHECK_EQ(bins_needed(x.rows(), shared, 0, 3), bins_by_definition(0x1p-100, 1, 8));
    CHECK(bins_needed(x.rows(), shared, 0, 3) > 1);
    // A column with its own bound needs one bin, and so does the same matrix without that row.
    CHECK_EQ(bins_needed(x.rows(), own, 0, 3), 1);
    CHECK_EQ(bins_needed(x.rows(), shared, 0, 1), 1);
    CHECK_EQ(bins_needed(x.rows(), shared, 2, 3), 1);
    CHECK_EQ(bins_needed(x.rows(), shared, 0, 0), 1);
    CHECK_EQ(bins_needed(x.rows(), shared, 0, 1, 4), 4);
    const Csr<double, std::int32_t> sparse(x);
    CHECK_EQ(bins_needed(sparse.rows(), shared, 0, 3), bins_by_definition(0x1p-100, 1, 8));
}

TEST(float_data_of_one_scale_needs_one_bin) {
    Random random(3);
    const Matrix<float> x(1000, 4, [&] { return random.uniform(0.01, 1); });
    CHECK_EQ(bins_needed(x.rows(), Bins({1.0}, 100'000), 0, x.n), 1);
    // Weights fill the mantissa, so more bins are needed.
    std::vector<double> weights(1000);
    for (double& w : weights) w = random.uniform(0.5, 1);
    CHECK_EQ(bins_needed(x.rows(weights.data()), Bins({1.0}, 100'000), 0, x.n), 2);
}

TEST(extreme_values_need_finitely_many_bins) {
    Matrix<double> x(4, 1);
    x(0, 0) = 0x1p300;
    x(1, 0) = 0x1.fffffffffffffp-1022;
    x(2, 0) = 0x1p-1074;
    x(3, 0) = -0x1.0000000000001p300;
    Bins grid({0x1.8p300}, 8);
    grid.set_bins(bins_needed(x.rows(), grid, 0, 4));
    CHECK(grid.bins() <= 66);
    for (Size i = 0; i < 4; ++i) {
        ExactSum total;
        for (const double part : split(grid, x(i, 0), 0)) {
            CHECK(std::isfinite(part));
            total.add(part);
        }
        CHECK_EQ(total.value(), x(i, 0));
    }
}

TEST(columns_of_zeros_are_accepted) {
    const Matrix<double> x(5, 2);
    Bins grid({0.0, 0.0}, 5);
    CHECK_EQ(bins_needed(x.rows(), grid, 0, 5), 1);
    grid.set_bins(3);
    for (const double part : split(grid, 0.0, 1)) CHECK_EQ(part, 0.0);
}

TEST(contributions_are_weighted_once_and_scaled_exactly) {
    Random random(4);
    const Matrix<double> x(1, 1);
    for (int repeat = 0; repeat < 1000; ++repeat) {
        const double value = random.normal(), weight = random.unit();
        CHECK(same_bits(contribution(x.rows().factor(0), value, 0x1p-600), value * 0x1p-600));
        CHECK(same_bits(contribution(x.rows(&weight).factor(0), value, 0x1p20),
                        (weight * value) * 0x1p20));
    }
}

TEST(sums_near_the_end_of_the_range_are_scaled_down) {
    Random random(5);
    for (const Size n : {8, 1000, 1 << 20}) {
        CHECK_EQ(Bins({1.0}, n).exponent(), 0);
        CHECK_EQ(Bins({0x1p-1074, 0x1p900}, n).exponent(), 0);
        const Matrix<double> x(50, 2, [&] { return std::ldexp(random.uniform(-1, 1), 1024); });
        Bins grid({std::numeric_limits<double>::max()}, n);
        CHECK(grid.exponent() < 0);
        CHECK_EQ(grid.scale(), std::ldexp(1.0, grid.exponent()));
        grid.set_bins(bins_needed(x.rows(), grid, 0, 50));
        for (const double value : x.values) {
            ExactSum total;
            for (const double part : split(grid, value * grid.scale(), 0)) {
                CHECK(std::isfinite(part * double(n)));
                total.add(part);
            }
            CHECK_EQ(total.value() / grid.scale(), value);
        }
    }
}
