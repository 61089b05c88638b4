// Lengths, unit vectors and 1 - cos against long double, at any magnitude.
#include "exactmeans/numerics/unit_vectors.hpp"

#include <numbers>

#include "check.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R>
long double true_length(const R* values, Size n) {
    long double sum = 0;
    for (Size f = 0; f < n; ++f) sum += static_cast<long double>(values[f]) * values[f];
    return std::sqrt(sum);
}

template <class R>
double apart(const Matrix<R>& x, Size i, const Matrix<double>& c) {
    const auto c2 = vector_kernels<double>().square_sum(c.row(0), nullptr, c.d, 1.0);
    const SparseRow<R, std::int32_t> row{nullptr, x.row(i), x.d};
    return one_minus_cos(row, length(x.row(i), x.d), [&](Size f) { return c(0, f); }, c2);
}

// 1 - cos as half the squared chord, which does not cancel.
template <class R>
long double true_apart(const Matrix<R>& x, Size i, const Matrix<double>& c) {
    const long double a = true_length(x.row(i), x.d), b = true_length(c.row(0), c.d);
    long double chord2 = 0;
    for (Size f = 0; f < x.d; ++f) {
        const long double step = x(i, f) / a - c(0, f) / b;
        chord2 += step * step;
    }
    return chord2 / 2;
}

template <class R>
void check_angles() {
    Random random(sizeof(R));
    constexpr long double unit = std::numeric_limits<R>::epsilon() / 2;
    for (const Size d : {2, 3, 17, 600}) {
        for (int repeat = 0; repeat < 200; ++repeat) {
            Matrix<double> c(1, d, [&] { return random.normal(); });
            const double spread = std::pow(10.0, -double(random.below(7))),
                         scale = std::ldexp(1.0, int(random.between(-30, 30)));
            Matrix<R> x(1, d);
            for (Size f = 0; f < d; ++f) x(0, f) = R(scale * (c(0, f) + spread * random.normal()));
            const long double wanted = true_apart(x, 0, c);
            // Above 2^-10 the result is a difference of doubles. The long double reference has the
            // rounding errors of the two unit vectors. Results within rounding of 0 are 0.
            CHECK(std::fabs(apart(x, 0, c) - wanted) <=
                  0x1p-41L * wanted + 0x1p-60L * std::sqrt(wanted) + 2 * unit * unit + 0x1p-98L);
        }
    }
}

}  // namespace

TEST(lengths_at_any_magnitude) {
    Random random(1);
    for (const int exponent : {-1000, -600, -310, -40, 0, 40, 310, 600, 990}) {
        const Matrix<double> x(1, 37, [&] { return std::ldexp(random.uniform(0.5, 1), exponent); });
        const long double wanted = true_length(x.row(0), 37);
        CHECK(std::fabs(length(x.row(0), 37) - wanted) <= 0x1p-51L * wanted);
    }
    for (const int exponent : {-140, -60, 0, 60, 120}) {
        const Matrix<float> x(1, 37, [&] { return std::ldexp(random.uniform(0.5, 1), exponent); });
        const long double wanted = true_length(x.row(0), 37);
        CHECK(std::fabs(length(x.row(0), 37) - wanted) <= 0x1p-51L * wanted);
    }
    const std::vector<double> none(5, 0.0), tiny(5, 0x1p-1060);
    CHECK_EQ(length(none.data(), 5), 0.0);
    CHECK(length(tiny.data(), 5) < shortest);
}

// Rows too short for products in their dtype have length 0.
TEST(rows_of_subnormal_length_have_length_0) {
    const std::vector<double> wide(1, 0x1p-1022), tiny(5, 0x1p-1060);
    CHECK_EQ(row_length(wide.data(), 1), 0x1p-1022);
    CHECK_EQ(row_length(tiny.data(), 5), 0.0);
    const std::vector<float> narrow(1, 0x1p-126f), faint_one(1, 0x1.fffffcp-127f);
    CHECK_EQ(row_length(narrow.data(), 1), 0x1p-126);
    CHECK_EQ(row_length(faint_one.data(), 1), 0.0);
}

TEST(directions_have_length_one) {
    Random random(2);
    for (const Size d : {1, 2, 50, 1000}) {
        const Matrix<double> v(1, d, [&] { return 1e-9 * random.normal(); });
        std::vector<double> wide(static_cast<std::size_t>(d));
        std::vector<float> narrow(wide.size());
        CHECK(direction(v.row(0), d, 0, wide.data()));
        CHECK(direction(v.row(0), d, 0, narrow.data()));
        CHECK(std::fabs(true_length(wide.data(), d) - 1) <= 0x1p-52L);
        CHECK(std::fabs(true_length(narrow.data(), d) - 1) <= 0x1p-23L);
    }
    // A sum of directions that nearly cancels is rounding error.
    const std::vector<double> left{0.5 * minimum_mean_length, 0, 0};
    std::vector<double> out{7, 7, 7};
    CHECK(!direction(left.data(), 3, minimum_mean_length, out.data()));
    CHECK_EQ(out[0], 7.0);
}

TEST(angles_float) { check_angles<float>(); }
TEST(angles_double) { check_angles<double>(); }

TEST(special_angles) {
    Random random(3);
    const Matrix<double> c(1, 30, [&] { return random.normal(); });
    Matrix<double> x(4, 30);
    for (Size f = 0; f < 30; ++f) {
        x(0, f) = std::ldexp(c(0, f), 40);
        x(1, f) = -c(0, f);
        x(2, f) = 0;
        x(3, f) = 3 * c(0, f);  // the same direction up to rounding
    }
    CHECK_EQ(apart(x, 0, c), 0.0);
    CHECK_EQ(apart(x, 1, c), 2.0);
    CHECK_EQ(apart(x, 2, c), 1.0);
    CHECK(apart(x, 3, c) < 1e-30);
    CHECK_EQ(angle_of(0), 0.0);
    CHECK(std::fabs(angle_of(1) - std::numbers::pi / 2) < 1e-15);
    CHECK(std::fabs(angle_of(2) - std::numbers::pi) < 1e-15);
}

namespace {

template <class R>
void check_products() {
    Random random(sizeof(R) + 8);
    for (const Size d : {1, 2, 3, 4, 7, 8, 9, 31, 64, 500}) {
        const Matrix<R> x(1, d, [&] { return random.normal(); });
        const Matrix<double> c(1, d, [&] { return random.normal(); });
        long double wanted = 0, size = 0;
        for (Size f = 0; f < d; ++f) {
            const long double term = static_cast<long double>(x(0, f)) * c(0, f) * 4;
            wanted += term;
            size += std::fabs(term);
        }
        const SquareSum first = isas()[0]->vectors<R>().product(x.row(0), c.row(0), d, 4);
        for (const Isa* table : isas()) {
            const SquareSum got = table->vectors<R>().product(x.row(0), c.row(0), d, 4);
            CHECK(std::fabs(got.value() - wanted) <=
                  0x1p-53L * std::fabs(wanted) + 0x1p-60L * size);
            CHECK(same_bits(got.high, first.high) && same_bits(got.low, first.low));
        }
    }
}

}  // namespace

TEST(products_float) { check_products<float>(); }
TEST(products_double) { check_products<double>(); }
