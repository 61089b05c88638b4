// The errors that the 8-bit filter for CSR rows allows for are at least those of the proof
// (docs/proofs/sparse_filter.md), term by term, and its bounds hold for rows and centres that come
// near them, with room for the rounding of canonical scores. Ordinary rows stay far below, so
// labels alone would not miss a term.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "check.hpp"
#include "exact_score.hpp"
#include "exactmeans/filter/quantized_filter.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

using Long = long double;

// Rows and centres with their codes.
template <class R>
struct Coded {
    static inline const Threads threads{};
    Matrix<R> x;
    Csr<R, std::int32_t> csr;
    Centres<R> centroids;
    QuantizedCentres<R> codes;
    QuantizedFilter<R> filter;

    Coded(Matrix<R> rows, const Matrix<R>& centres, Frame<R> frame = {})
        : x(std::move(rows)),
          csr(x),
          centroids(centres.values.data(), centres.n, centres.d, std::move(frame), threads),
          codes(centroids, std::make_shared<LayoutSettings>(), false) {
        codes.update(centroids, threads);
        filter.load(csr.rows(), 0, csr.n);
        filter.quantize(codes);
    }
};

// Errors against the formulas, with quantities computed again.
template <class R>
void expect_errors(const Coded<R>& coded) {
    const Size d = coded.x.d, k = coded.centroids.k();
    constexpr Long near = 1 - 0x1p-45L;  // the rounding of float64
    bool any_positive = false;
    Long largest_offset = 0, largest_scale = 0;
    std::vector<Long> longest(static_cast<std::size_t>(d));
    for (Size j = 0; j < k; ++j) {
        const Long offset = Long(coded.centroids.score_offset()[j]);
        largest_offset = std::max(largest_offset, offset);
        CHECK(Long(coded.codes.score_offset_error(coded.codes.place(j))) >=
              0x1p-18L * offset * (1 - 0x1p-19L));
        const SparseVector<R> centre = coded.centroids.nonzeros(j);
        for (std::size_t e = 0; e < centre.feature.size(); ++e) {
            const Size f = Size(centre.feature[e]);
            const Long p = Long(coded.centroids.frame().packed(f, centre.value[e]));
            any_positive = any_positive || p > 0;
            longest[std::size_t(f)] = std::max(longest[std::size_t(f)], std::abs(p));
        }
    }
    const int z = any_positive ? 0 : 127;
    for (Size f = 0; f < d; ++f) {
        const Long scale = Long(coded.codes.scales()[std::size_t(f)]);
        CHECK(scale >= longest[std::size_t(f)] / (127 + z));
        largest_scale = std::max(largest_scale, scale);
    }
    for (Size i = 0; i < coded.x.n; ++i) {
        const QuantizedRow& row = coded.filter.quantized(i);
        const auto& error = coded.filter.error(i);
        const Long m = Long(row.nonzeros);
        Long size = 0, sum = 0;  // G, and the sum of g
        for (Size f = 0; f < d; ++f) {
            const Long g = Long(coded.x(i, f)) * coded.codes.scales()[std::size_t(f)];
            size += std::abs(g);
            sum += g;
        }
        const Long underflow = m * (1 + largest_scale) * 0x1p-149L, per = 128 / (32766 - m),
                   u = per * std::max(size, 0x1p-90L);
        CHECK(std::abs(row.unit - u) <= 0x1p-13L * u + per * underflow);
        CHECK(std::abs(row.sum - sum) <= 0x1p-13L * size + underflow);
        const Long own = Long(row.unit),
                   kappa = 0x1p-8L * (m + 2) * own + 0x1p-22L * largest_offset +
                           (m + 1) * (1 + largest_scale) * 0x1p-120L,
                   wide = own * (133 + m * (1 + 0x1p-5L)) + kappa;
        CHECK(Long(error.offset) + z * Long(row.sum) <= -wide * near + 0x1p-52L * z * size);
        CHECK(Long(error.width) >= 2 * wide * near);
        CHECK(Long(error.refined) >= (4 * own + kappa) * near);
    }
}

template <class R>
std::vector<ExactCentre<R>> exact_centres(const Coded<R>& coded) {
    std::vector<ExactCentre<R>> all;
    for (Size j = 0; j < coded.centroids.k(); ++j) all.emplace_back(coded.centroids, j);
    return all;
}

// All bounds of the scores of the rows, by 8-bit codes and by 16-bit codes, leave room for the
// rounding of canonical scores.
template <class R>
void expect_room(Coded<R>& coded) {
    const Size k = coded.centroids.k();
    QuantizedFilter<R>& filter = coded.filter;
    filter.score(coded.codes);
    const std::vector<ExactCentre<R>> centres = exact_centres(coded);
    std::vector<Long> low(static_cast<std::size_t>(k)), high(low.size());  // what bounds may be
    for (Size i = 0; i < coded.x.n; ++i) {
        for (std::size_t j = 0; j < low.size(); ++j) {
            const auto [score, rounding] = centres[j](coded.x, i);
            low[j] = score - rounding;
            high[j] = score + rounding;
        }
        typename QuantizedFilter<R>::GroupLows others;
        const auto best = filter.best(coded.codes, i, others);
        const Size nearest = coded.codes.centre(best.place);
        CHECK(Long(best.low) <= low[std::size_t(nearest)]);
        CHECK(Long(best.high) >= high[std::size_t(nearest)]);
        for (Size j = 0; j < k; ++j)
            if (j != nearest)
                CHECK(Long(others.of[coded.codes.group(coded.codes.place(j))]) <=
                      low[std::size_t(j)]);
        const auto row = coded.csr.rows().row(i);
        for (Size own = 0; own < k; ++own) {
            double own_high = 0, others_low = 0;
            filter.refine(row, i, coded.codes, coded.codes.place(own), own_high, others_low);
            CHECK(!(Long(own_high) < high[std::size_t(own)]));  // NaN if no bound holds
            for (Size j = 0; j < k; ++j)
                if (j != own) CHECK(Long(others_low) <= low[std::size_t(j)]);
        }
    }
}
// The labels, and the bounds that are kept.
template <class R>
void expect_labels(Coded<R>& coded) {
    QuantizedFilter<R>& filter = coded.filter;
    filter.label_rows(coded.csr.rows(), coded.centroids, coded.codes, [](Size t) { return t; });
    const std::vector<ExactCentre<R>> centres = exact_centres(coded);
    for (std::size_t i = 0; i < filter.label.size(); ++i)
        for (Size j = 0; j < coded.centroids.k(); ++j) {
            const auto [score, rounding] = centres[std::size_t(j)](coded.x, Size(i));
            if (j == filter.label[i])
                CHECK(Long(filter.high[i]) >= score + rounding);
            else
                CHECK(Long(filter.low[i].of[coded.codes.group(coded.codes.place(j))]) <=
                      score - rounding);
        }
}

template <class R>
void expect_bounds(Coded<R>& coded) {
    expect_errors(coded);
    expect_room(coded);
    expect_labels(coded);
}

// Values of `signs` 1 (none negative), -1 (none positive) or 0.
double with_signs(int signs, double value, Random& random) {
    return signs ? signs * value : random.coin() ? value : -value;
}

template <class R, class Run>
void for_signs(Run run) {
    for (const int of_rows : {1, 0})
        for (const int of_centres : {1, -1, 0}) run(R(), of_rows, of_centres);
}
template <class Run>
void for_dtypes_and_signs(Run run) {
    for_signs<float>(run);
    for_signs<double>(run);
}

}  // namespace

TEST(errors_of_ordinary_rows) {
    Random random(1);
    for_dtypes_and_signs([&]<class R>(R, int of_rows, int of_centres) {
        for (const Size d : {1, 3, 40, 300})
            for (const double scale : {1e-3, 1.0, 1e4}) {
                const auto value = [&](int signs) {
                    return scale * with_signs(signs, random.unit(), random);
                };
                Matrix<R> x(6, d, [&] { return random.coin() ? value(of_rows) : 0.0; });
                Coded<R> coded(std::move(x), Matrix<R>(40, d, [&] { return value(of_centres); }));
                expect_bounds(coded);
            }
    });
}

// Several panels, most of which have no candidates.
TEST(bounds_of_many_centres) {
    Random random(6);
    for_dtypes_and_signs([&]<class R>(R, int of_rows, int of_centres) {
        const auto value = [&](int signs) { return with_signs(signs, random.unit(), random); };
        Coded<R> coded(Matrix<R>(20, 3, [&] { return value(of_rows); }),
                       Matrix<R>(260, 3, [&] { return 30 * value(of_centres); }));
        CHECK(coded.codes.panels().count() > 1);
        expect_bounds(coded);
    });
}

// Half a code, times the sum of the codes of the row: rows of one entry.
TEST(codes_that_are_half_a_scale_off) {
    Random random(2);
    for_dtypes_and_signs([&]<class R>(R, int of_rows, int of_centres) {
        constexpr Size d = 30;
        Matrix<R> x(d, d);
        for (Size f = 0; f < d; ++f) x(f, f) = R(with_signs(of_rows, 1 + random.unit(), random));
        Coded<R> coded(std::move(x), Matrix<R>(100, d, [&] {
                           return with_signs(of_centres, random.unit(), random);
                       }));
        expect_bounds(coded);
    });
}

// Entries of a row and their products with codes all round in the same direction, by nearly half:
// (32766 - m) / m is just above 3.5, 4.5 and so on.
TEST(products_that_round_alike) {
    for_dtypes_and_signs([&]<class R>(R, int of_rows, int of_centres) {
        for (const Size m : {7281, 5957, 2184, 60}) {
            constexpr Size k = 24;
            Matrix<R> x(2, m, [&] { return 1; }), centres(k, m);
            for (Size f = 0; f < m; ++f) {
                x(1, f) = R(of_rows ? 2 : -1);
                for (Size j = 0; j < k; ++j)
                    centres(j, f) =
                        R(of_centres ? of_centres * double(j + 1) : double(j) - 0.5 * double(k)) /
                        R(k);
            }
            Coded<R> coded(std::move(x), centres);
            expect_errors(coded);
            expect_room(coded);
        }
    });
}

// The rounding of canonical scores exceeds the other errors of 16-bit scores: long rows, and
// centres that differ little, in codes of the largest magnitude.
TEST(rounding_of_canonical_scores_of_long_rows) {
    Random random(3);
    for_dtypes_and_signs([&]<class R>(R, int of_rows, int of_centres) {
        constexpr Size d = 8192;
        Matrix<R> x(2, d, [&] { return with_signs(of_rows, 1 + random.unit(), random); });
        Coded<R> coded(std::move(x), Matrix<R>(4, d, [&] {
                           return with_signs(of_centres, 1 - 0x1p-10 * random.unit(), random);
                       }));
        expect_errors(coded);
        expect_room(coded);
    });
}

// Score offsets are stored too low, and products with the rows are smaller than that. The last term
// of kappa is compared with the smallest unit of a row.
TEST(score_offsets_larger_than_all_products) {
    Random random(4);
    for_dtypes_and_signs([&]<class R>(R, int of_rows, int of_centres) {
        for (const double size : {1e-30, 1e-12, 1e-6, 0.0})
            for (const double centre : {1.0, 1e3, 0x1p-40}) {
                constexpr Size d = 8;
                Matrix<R> x(6, d, [&] {
                    return random.coin() ? size * with_signs(of_rows, random.unit(), random) : 0.0;
                });
                Coded<R> coded(std::move(x), Matrix<R>(40, d, [&] {
                                   return centre *
                                          with_signs(of_centres, 1 + 0.1 * random.unit(), random);
                               }));
                expect_bounds(coded);
            }
    });
}

// Entries that underflow in float32, and packed values so large that their products matter.
TEST(entries_that_underflow) {
    for (const int sign : {1, -1}) {
        Frame<double> frame;
        frame.exponent = 127;  // packed values are 2^254 times the centres
        Matrix<double> x(3, 2), centres(40, 2);
        for (Size f = 0; f < 2; ++f) x(0, f) = x(1, f) = sign * 0x1p-151;
        x(1, 1) = 0;
        for (Size j = 0; j < centres.n; ++j) {
            centres(j, 0) = std::ldexp(1 + 0.01 * double(j), -134);
            centres(j, 1) = std::ldexp(1.5 - 0.02 * double(j), -134);
        }
        Coded<double> coded(std::move(x), centres, frame);
        expect_bounds(coded);
    }
}

// Rows that are too long, or too large, have labels but no bounds.
TEST(rows_beyond_the_limits_have_no_bounds) {
    Matrix<float> x(2, QuantizedRow::longest + 1, [] { return 1; });
    x(1, 5) = 0;
    Coded<float> coded(std::move(x), Matrix<float>(40, QuantizedRow::longest + 1));
    CHECK(!std::isfinite(coded.filter.error(0).width));
    CHECK(!std::isfinite(coded.filter.error(0).refined));
    CHECK(std::isfinite(coded.filter.error(1).width));
    expect_labels(coded);
    Random random(7);
    Coded<double> large(Matrix<double>(5, 3, [&] { return 0x1p120 * (1 + random.unit()); }),
                        Matrix<double>(40, 3, [&] { return 1 + random.unit(); }));
    CHECK(!std::isfinite(large.filter.error(0).width));
    expect_room(large);
    expect_labels(large);
}

// Score offsets of float64 centres that are infinite in float32: of all centres, or of the nearest
// one only.
TEST(score_offsets_beyond_the_range_of_float32) {
    constexpr Size k = 40, nearest = 7;
    constexpr double factor = 1 - 0x1p-20,
                     offset = 0x1p128 * (1 + 0x1p-20 - 0x1p-25 + 0x1p-40);  // the lowest of these
    for (const bool all : {false, true}) {
        Matrix<double> x(2, k), centres(k, k);
        for (Size j = 0; j < k; ++j)
            centres(j, j) =
                std::sqrt(2 * offset * (all || j == nearest ? 1 + 0x1p-36 : 1 - 0x1p-36));
        x(0, nearest) = 0x1p30;
        Coded<double> coded(std::move(x), centres);
        const auto is_infinite = [&](Size j) {
            return std::isinf(float(coded.centroids.score_offset()[j] * factor));
        };
        CHECK(is_infinite(nearest));
        CHECK_EQ(is_infinite(0), all);
        expect_room(coded);
        expect_labels(coded);
        CHECK_EQ(Size(coded.filter.label[0]), nearest);
    }
}

// Every 8-bit score that allows for an exact score of `limit` is within score_limit().
TEST(score_limits_round_upwards) {
    Random random(5);
    Coded<float> coded(Matrix<float>(50, 20, [&] { return random.normal(); }),
                       Matrix<float>(40, 20, [&] { return random.unit(); }));
    for (Size i = 0; i < coded.x.n; ++i)
        for (int repeat = 0; repeat < 200; ++repeat) {
            const float score = float(random.normal() * std::exp2(random.uniform(-30, 30)));
            const Long exact = Long(score) + coded.filter.error(i).offset;
            double limit = double(exact);
            if (Long(limit) < exact) limit = std::nextafter(limit, HUGE_VAL);
            CHECK(coded.filter.score_limit(i, limit) >= score);
        }
}
