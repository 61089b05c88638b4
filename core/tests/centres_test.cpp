#include "exactmeans/centres/centres.hpp"

#include <algorithm>
#include <limits>

#include "check.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/numerics/compensated.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R>
std::vector<R> copy(const R* from, Size count) {
    return {from, from + count};
}

template <class R>
void check_layout(LayoutCache<R>& layouts, const Centres<R>& centroids,
                  const std::vector<R>& wanted, bool dense, int n_jobs) {
    const Size k = centroids.k(), d = centroids.d();
    const HeldPanels<R> panels = layouts.panels(centroids, dense, Threads{n_jobs});
    const std::uint32_t* packed_columns = panels.packed_columns;
    CHECK_EQ(panels.k, k);
    CHECK_EQ(panels.d, d);
    Size next = 0;
    for (Size p = 0; p < panels.count; ++p) {
        const auto panel = panels.panel(p);
        CHECK_EQ(panel.first, next);
        CHECK(panel.units > 0 && (dense ? panel.units <= 3 : panel.units <= csr_units));
        next += panel.width();
        for (Size lane = 0; lane < panel.width(); ++lane) {
            const Size j = panel.first + lane;
            CHECK(j < k || panels.score_offset[j] == std::numeric_limits<R>::infinity());
            for (Size f = 0; f < d; ++f) {
                const Size packed_column = packed_columns ? Size(packed_columns[f]) : f;
                const R got = panels.values[panel.first * d + packed_column * panel.width() + lane];
                // Padding must be finite, because 0 times infinity is NaN.
                CHECK(same_bits(got, j < k ? -wanted[std::size_t(j * d + f)] : R(0)));
            }
        }
    }
    CHECK_EQ(next, padded<R>(k));
}

// Switches between both layouts.
template <class R>
void check_layouts(LayoutCache<R>& layouts, const Centres<R>& centroids,
                   const std::vector<R>& wanted) {
    for (const int n_jobs : {1, 3}) {
        check_layout(layouts, centroids, wanted, true, n_jobs);
        check_layout(layouts, centroids, wanted, false, n_jobs);
        check_layout(layouts, centroids, wanted, false, n_jobs);
    }
}
template <class R>
void check_layouts(const Centres<R>& centroids, const std::vector<R>& wanted) {
    LayoutCache<R> layouts;
    check_layouts(layouts, centroids, wanted);
}

// Multiples of 2^-30 below 32, so that squares are exact in 128 bits (but not in a double).
template <class R>
Matrix<R> fixed_point_centres(Random& random, Size k, Size d) {
    return Matrix<R>(k, d, [&] {
        const double value = random.uniform(-30, 30);
        return std::ldexp(std::nearbyint(std::ldexp(double(R(value)), 30)), -30);
    });
}

template <class R>
void check_start(Size k, Size d) {
    Random random(std::uint64_t(k * 1000 + d));
    const Matrix<R> centres = fixed_point_centres<R>(random, k, d);
    for (const int n_jobs : {1, 2, 7}) {
        const Centres<R> centroids(centres.values.data(), k, d, {}, Threads{n_jobs});
        for (Size j = 0; j < k; ++j) {
            Int128 norm2 = 0;
            for (Size f = 0; f < d; ++f) {
                const Int128 value = fixed_point(double(centres(j, f)), 30);
                norm2 += value * value;
            }
            const double wanted = std::ldexp(double(norm2), -60);
            CHECK(same_bits(centroids.norm2(j), wanted));
            CHECK(same_bits(centroids.score_offset()[j], R(0.5 * wanted)));
        }
        CHECK_EQ(centroids.norm_terms(), 1);
    }
}

template <class R>
long double distance(const Matrix<R>& a, const Matrix<R>& b, Size j, const std::vector<R>& shift) {
    long double sum = 0;
    for (Size f = 0; f < a.d; ++f) {
        const R minus = shift.empty() ? R(0) : shift[std::size_t(f)];
        const long double step = static_cast<long double>(R(a(j, f) - minus)) - R(b(j, f) - minus);
        sum += step * step;
    }
    return std::sqrt(sum);
}

template <class R>
void check_movement(const Frame<R>& frame, double scale) {
    Random random(11);
    for (const Size d : {1, 5, 64, 700}) {
        constexpr Size k = 23;
        Matrix<R> before(k, d, [&] { return random.normal() * scale; });
        Centres<R> centroids(before.values.data(), k, d, frame, Threads{2});
        for (int repeat = 0; repeat < 5; ++repeat) {
            Matrix<R> after = before;
            for (Size j = 0; j < k; ++j) {
                const double step = scale * std::pow(10.0, -double(random.below(9)));
                if (j % 3 != 1) {
                    for (Size f = 0; f < d; ++f) after(j, f) += R(step * random.normal());
                }
            }
            const Movement movement = centroids.move(after.values.data(), Threads{1 + repeat});
            long double shift2 = 0;
            Size moved = 0;
            for (Size j = 0; j < k; ++j) {
                const long double wanted = distance(after, before, j, frame.shift) *
                                           static_cast<long double>(frame.scale());
                const double got = movement.distance[std::size_t(j)];
                CHECK(got >= wanted);
                CHECK(got <= wanted * (1 + 0x1p-42L));
                CHECK(j % 3 != 1 || got == 0);
                moved += got > 0;
                const long double own = distance(after, before, j, {}) * frame.scale();
                shift2 += own * own;
            }
            CHECK_EQ(movement.moved, moved);
            CHECK(std::fabs(movement.shift2 - double(shift2)) <= 1e-12 * double(shift2));
            std::vector<double> sorted = movement.distance;
            std::sort(sorted.rbegin(), sorted.rend());
            CHECK_EQ(movement.farthest.first, sorted[0]);
            CHECK_EQ(movement.farthest.second, sorted[1]);
            for (Size j = 0; j < k; ++j) {
                double other = 0;
                for (Size t = 0; t < k; ++t) {
                    if (t != j) other = std::max(other, movement.distance[std::size_t(t)]);
                }
                CHECK_EQ(movement.farthest.of_others(j), other);
            }
            CHECK(same_bits(copy(centroids.master(), k * d), after.values));
            before = after;
        }
        const Movement still = centroids.move(before.values.data(), Threads{});
        CHECK_EQ(still.moved, 0);
        CHECK_EQ(still.farthest.first, 0.0);
        CHECK_EQ(still.shift2, 0.0);
        CHECK_EQ(*std::max_element(still.distance.begin(), still.distance.end()), 0.0);
    }
}

}  // namespace

TEST(layouts_hold_minus_the_centres_and_padding_has_infinite_offsets) {
    Random random(1);
    for (const Size k : {1, 2, 7, 8, 9, 15, 16, 17, 33, 60, 113, 129}) {
        for (const Size d : {1, 3, 8, 300}) {
            const Matrix<float> single(k, d, [&] { return random.normal(); });
            check_layouts(Centres<float>(single.values.data(), k, d, {}, Threads{}), single.values);
            const Matrix<double> twice(k, d, [&] { return random.normal(); });
            check_layouts(Centres<double>(twice.values.data(), k, d, {}, Threads{}), twice.values);
        }
    }
}

TEST(score_offset_is_half_the_exact_squared_norm_rounded_once) {
    for (const Size d : {1, 2, 3, 10, 100, 3000}) {
        check_start<float>(20, d);
        check_start<double>(20, d);
    }
}

TEST(a_shift_is_subtracted_and_rounded) {
    Random random(2);
    constexpr Size k = 11, d = 6;
    const Matrix<float> centres(k, d, [&] { return 1000 + random.normal(); });
    const std::vector<float> shift{1000.1F, 999.9F, 1000.0F, 1001.3F, 998.7F, 0.0F};
    const Centres<float> centroids(centres.values.data(), k, d, {0, shift}, Threads{});
    std::vector<float> wanted;
    for (Size j = 0; j < k; ++j) {
        Compensated norm2;
        for (Size f = 0; f < d; ++f) {
            wanted.push_back(centres(j, f) - shift[std::size_t(f)]);
            norm2.add_product(double(wanted.back()), double(wanted.back()));
            CHECK(same_bits(centroids.derived(j, f), wanted.back()));
            CHECK(same_bits(centroids.master(j)[f], centres(j, f)));
        }
        CHECK(same_bits(centroids.score_offset()[j], float(0.5 * norm2.value())));
    }
    check_layouts(centroids, wanted);
}

TEST(an_exponent_scales_without_rounding) {
    Random random(3);
    constexpr Size k = 10, d = 4;
    for (const int exponent : {-400, -3, 3, 400}) {
        // Data of magnitude 2^-exponent is near 1 on the scale of the frame, so unscaled centres
        // are the reference.
        const Matrix<double> near_one(k, d, [&] { return random.normal(); });
        Matrix<double> centres = near_one;
        std::vector<double> wanted = near_one.values;
        for (double& v : centres.values) v = std::ldexp(v, -exponent);
        for (double& v : wanted) v = std::ldexp(v, exponent);
        const Centres<double> scaled(centres.values.data(), k, d, {exponent, {}}, Threads{});
        const Centres<double> plain(near_one.values.data(), k, d, {}, Threads{});
        CHECK(same_bits(copy(scaled.score_offset(), k), copy(plain.score_offset(), k)));
        for (Size j = 0; j < k; ++j) CHECK(same_bits(scaled.norm2(j), plain.norm2(j)));
        // The row is not scaled, so the centre is scaled twice: x . c 4^e is the product of both
        // scaled.
        check_layouts(scaled, wanted);
    }
}

namespace {

// Squares on the scale of the frame, and centres scaled twice, keep all bits.
template <class R>
void check_exponent(double largest) {
    const int exponent = safe_exponent<R>(largest);
    const double scaled = std::ldexp(largest, exponent);
    const double packed = std::ldexp(largest, 2 * exponent);
    for (const double value : {scaled * scaled, packed}) {
        CHECK(value > 1e4 * double(std::numeric_limits<R>::min()));
        CHECK(value < 1e-4 * double(std::numeric_limits<R>::max()));
    }
}

}  // namespace

TEST(exponents_are_zero_unless_squares_overflow_or_underflow) {
    CHECK_EQ(safe_exponent<float>(0), 0);
    for (const double fine : {1e-12, 1.0, 1e12}) CHECK_EQ(safe_exponent<float>(fine), 0);
    for (const double fine : {1e-100, 1.0, 1e100}) CHECK_EQ(safe_exponent<double>(fine), 0);
    for (const double extreme : {1e-15, 1e15, 1e120, 1e-120})
        CHECK(safe_exponent<float>(extreme) != 0);
    for (int power = -149; power < 128; ++power) check_exponent<float>(std::ldexp(1.0, power));
    for (int power = -1074; power < 1024; ++power) check_exponent<double>(std::ldexp(1.0, power));
}

TEST(features_can_be_renumbered) {
    Random random(5);
    constexpr Size k = 21, d = 40;
    const Matrix<float> centres(k, d, [&] { return random.normal(); });
    const Centres<float> centroids(centres.values.data(), k, d, {}, Threads{});
    LayoutCache<float> layouts;
    check_layouts(layouts, centroids, centres.values);
    std::vector<std::uint32_t> packed_columns(d);
    for (Size f = 0; f < d; ++f) packed_columns[std::size_t(f)] = std::uint32_t(f * 7 % d);
    layouts.set_packed_columns(packed_columns);
    check_layouts(layouts, centroids, centres.values);
}

TEST(movement_is_an_upper_bound_and_zero_for_unmoved_centres) {
    check_movement<float>({}, 1.0);
    check_movement<double>({}, 1.0);
    check_movement<double>({-600, {}}, 0x1p600);
    check_movement<float>({80, {}}, 0x1p-80);
}

TEST(movement_is_that_of_the_shifted_centres) {
    Random random(12);
    for (const Size d : {1, 5, 64, 700}) {
        std::vector<float> shift(static_cast<std::size_t>(d));
        for (float& s : shift) s = float(100 * random.normal());
        const Matrix<float> before(5, d, [&] { return 100 * random.normal(); });
        Matrix<float> after = before;
        for (float& v : after.values) v = std::nextafter(v, 1e9F);
        Centres<float> centroids(before.values.data(), 5, d, {0, shift}, Threads{});
        const Movement movement = centroids.move(after.values.data(), Threads{});
        for (Size j = 0; j < 5; ++j) {
            const auto wanted = distance(after, before, j, shift);
            CHECK(movement.distance[std::size_t(j)] >= wanted);
            CHECK(movement.distance[std::size_t(j)] <= wanted * (1 + 0x1p-42L) + 1e-150L);
        }
    }
}

TEST(moving_updates_everything_derived) {
    Random random(4);
    constexpr Size k = 19, d = 9;
    const Matrix<double> a(k, d, [&] { return random.normal(); });
    const Matrix<double> b(k, d, [&] { return random.normal(); });
    Centres<double> moved(a.values.data(), k, d, {}, Threads{});
    const Centres<double> fresh(b.values.data(), k, d, {}, Threads{});
    LayoutCache<double> layouts;
    check_layouts(layouts, moved, a.values);
    const std::vector<double> norms(std::size_t(k), 3.0);
    moved.set_norms(norms.data(), 7);
    moved.move(b.values.data(), Threads{});
    check_layouts(layouts, moved, b.values);
    CHECK_EQ(moved.norm_terms(), 1);
    CHECK(same_bits(copy(moved.score_offset(), k), copy(fresh.score_offset(), k)));
    for (Size j = 0; j < k; ++j) CHECK(same_bits(moved.norm2(j), fresh.norm2(j)));
}

TEST(norms_can_be_replaced) {
    const Matrix<float> centres(3, 2, [] { return 1.0; });
    Centres<float> centroids(centres.values.data(), 3, 2, {}, Threads{});
    const std::vector<double> norms{2.0000001, 0.1, 4.0};
    centroids.set_norms(norms.data(), 5);
    CHECK_EQ(centroids.norm_terms(), 5);
    for (Size j = 0; j < 3; ++j) {
        CHECK(same_bits(centroids.score_offset()[j], float(0.5 * norms[std::size_t(j)])));
        CHECK(same_bits(LayoutCache<float>().panels(centroids, true, Threads{}).score_offset[j],
                        centroids.score_offset()[j]));
        CHECK_EQ(centroids.norm2(j), 2.0);  // bounds use the true norm
    }
    CHECK_EQ(centroids.score_offset()[3], std::numeric_limits<float>::infinity());
    // Given norms last until the next move, also for centres that do not move.
    centroids.move(centres.values.data(), Threads{});
    CHECK_EQ(centroids.norm_terms(), 1);
    for (Size j = 0; j < 3; ++j) CHECK_EQ(centroids.score_offset()[j], 1.0F);
}
